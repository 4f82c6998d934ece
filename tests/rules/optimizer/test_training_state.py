"""O753 to O762: what training left beside the weights; every optimizer of torch is healthy."""

from __future__ import annotations

import inspect
import json

import pytest
import torch
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from tests.libraries import lightning, real
from tests.rules.examined import found, loads

CODES = frozenset(f"O{number}" for number in (753, 754, 755, 757, 758, 759, 760, 761, 762))
OPTIMIZERS = [
    kind
    for kind in vars(torch.optim).values()
    if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
]
VARIANTS = ({}, {"momentum": 0.9}, {"amsgrad": True}, {"momentum": 0.9, "nesterov": True}, {"foreach": True})
SCHEDULERS = {
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 1),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10),
    "sequence": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 2), lr_scheduler.CosineAnnealingLR(optimizer, 5)], [2]
    ),
    "restarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3),
    "averages": lambda optimizer: torch.optim.swa_utils.SWALR(optimizer, 0.05),
}


def net():
    """Two layers."""
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))


def step(model, optimizer):
    """One step of training."""

    def loss():
        optimizer.zero_grad()
        value = model(torch.ones(2, 4)).sum()
        value.backward()
        return value

    optimizer.step(loss)


def said(path):
    """The findings of these rules about a file."""
    return [finding for finding in check(str(path), Settings()).findings if finding.code in CODES]


@pytest.mark.parametrize("kind", OPTIMIZERS, ids=lambda kind: kind.__name__)
def test_every_optimizer_of_torch_is_healthy(tmp_path, kind):
    """Model, optimizer, scheduler, scaler and epoch, with the options that the class takes: not a word."""
    if kind is torch.optim.SparseAdam:
        pytest.skip("it takes sparse gradients only")
    for options in VARIANTS:
        model = net()
        given = [each for each in model.parameters() if each.ndim == 2 or kind.__name__ != "Muon"]
        try:
            optimizer = kind(given, lr=0.1, **options)
        except (TypeError, ValueError, RuntimeError):  # not an option of this one
            continue
        scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 5)
        step(model, optimizer)
        scheduler.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
        torch.save({**state, "scaler": torch.amp.GradScaler("cpu").state_dict(), "epoch": 1}, tmp_path / "a.pt")
        assert said(tmp_path / "a.pt") == []


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")  # torch's own, out of SequentialLR
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_beside_their_optimizer(tmp_path, name):
    """Two groups of two rates, after some steps."""
    model = net()
    groups = [{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 0.05}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    scheduler = SCHEDULERS[name](optimizer)
    for _ in range(4):
        step(model, optimizer)
        scheduler.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    torch.save(state, tmp_path / "a.pt")
    assert said(tmp_path / "a.pt") == []


def test_momentum_under_the_options_of_adam(tmp_path):
    """Adam fails with the quoted error."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step(model, optimizer)
    adam = torch.optim.Adam(model.parameters())
    mixed = {"state": optimizer.state_dict()["state"], "param_groups": adam.state_dict()["param_groups"]}
    torch.save({"model": model.state_dict(), "optimizer": mixed}, tmp_path / "a.pt")
    (finding,) = said(tmp_path / "a.pt")
    assert (finding.code, finding.severity) == ("O753", Severity.WARNING)
    with pytest.raises(KeyError) as caught:
        adam.load_state_dict(mixed)
    assert finding.torch_says == (f"KeyError: {caught.value}",)


def test_amsgrad_without_its_maxima(tmp_path):
    """The first step fails with the quoted error."""
    model = net()
    adam = torch.optim.Adam(model.parameters())
    step(model, adam)
    state = adam.state_dict()
    state["param_groups"][0]["amsgrad"] = True
    torch.save({"model": model.state_dict(), "optimizer": state}, tmp_path / "a.pt")
    (finding,) = said(tmp_path / "a.pt")
    resumed = torch.optim.Adam(model.parameters(), amsgrad=True)
    resumed.load_state_dict(state)
    with pytest.raises(KeyError) as caught:
        resumed.step()
    assert finding.torch_says == (f"KeyError: {caught.value}",)


def test_a_stripped_checkpoint_is_information(tmp_path):
    """As strip_optimizer leaves it; weights with an epoch, as people publish them, are not mentioned."""
    for contents, codes in (({"epoch": -1, "optimizer": None}, ["O754"]), ({"epoch": 90, "best_acc1": 76.1}, [])):
        torch.save({**contents, "model": net().state_dict()}, tmp_path / "a.pt")
        findings = said(tmp_path / "a.pt")
        assert [finding.code for finding in findings] == codes
        assert all(finding.severity is Severity.INFO for finding in findings)


def test_large_moments_are_information_and_slim_removes_them(tmp_path):
    """Adam keeps twice the weights; after --slim a third is left."""
    model = torch.nn.Linear(1024, 1024)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 1024)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
    (finding,) = said(tmp_path / "a.pt")
    assert (finding.code, finding.severity, finding.fix) == ("O755", Severity.INFO, None)
    assert finding.message == "66.7 % of the file is the state of the optimizer: 8.4 MB of 12.6 MB"
    output = repair(plan(FixRequest(str(tmp_path / "a.pt"), slim=True))).plan.output
    assert said(output) == []


@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 256), (torch.float16, 2048)], ids=str)
def test_counters_of_half_precision_stand_still(tmp_path, dtype, most):
    """torch adds one to the number that the message gives, and nothing changes."""
    model = net()
    adam = torch.optim.Adam(model.parameters())
    step(model, adam)
    state = adam.state_dict()
    for each in state["state"].values():
        each["step"] = torch.tensor(float(most), dtype=dtype)
    torch.save({"model": model.state_dict(), "optimizer": state}, tmp_path / "a.pt")
    (finding,) = said(tmp_path / "a.pt")
    assert (finding.code, finding.severity) == ("O757", Severity.WARNING)
    assert f"counts to {most:,}" in finding.message
    adam.load_state_dict(state)
    step(model, adam)
    assert adam.state_dict()["state"][0]["step"] == most


def test_a_warm_up_for_another_number_of_groups(tmp_path):
    """A LambdaLR refuses to go on with the quoted error."""
    model = net()
    groups = [{"params": model[0].parameters()}, {"params": model[1].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    other = lr_scheduler.LambdaLR(torch.optim.SGD(model.parameters(), lr=0.1), lambda epoch: 1.0)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": other.state_dict()}
    torch.save(state, tmp_path / "a.pt")
    (finding,) = said(tmp_path / "a.pt")
    assert (finding.code, finding.severity) == ("O758", Severity.WARNING)
    scheduler = lr_scheduler.LambdaLR(optimizer, [lambda epoch: 1.0] * 2)
    kept = {key: value for key, value in other.state_dict().items() if key != "lr_lambdas"}
    scheduler.load_state_dict({**kept, "lr_lambdas": [None, None]})
    optimizer.step()
    with pytest.raises(ValueError, match="zip") as caught:
        scheduler.step()
    assert finding.torch_says == (f"ValueError: {caught.value}",)


def test_a_learning_rate_that_was_changed(tmp_path):
    """Information: the optimizer's rate is the one that counts."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    optimizer.param_groups[0]["lr"] = 0.003
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    torch.save(state, tmp_path / "a.pt")
    (finding,) = said(tmp_path / "a.pt")
    assert (finding.code, finding.severity) == ("O758", Severity.INFO)
    assert "to 0.1, optimizer has 0.003" in finding.message


@pytest.mark.parametrize(
    ("scale", "severity"), [(0.0, Severity.WARNING), (float("inf"), Severity.WARNING), (0.25, Severity.INFO)]
)
def test_a_scaler_in_trouble(tmp_path, scale, severity):
    """A scale of nothing is a warning, a small one information."""
    state = {**torch.amp.GradScaler("cpu").state_dict(), "scale": scale}
    torch.save({"model": net().state_dict(), "scaler": state}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "O760")
    assert finding.severity is severity


@pytest.mark.parametrize(
    ("gone", "named"),
    [((), ""), (("optimizer.pt",), "optimizer.pt"), (("rng_state_1.pth",), "rng_state_1.pth")],
    ids=["all files are there", "optimizer", "generator"],
)
def test_a_folder_of_the_trainer(tmp_path, gone, named):
    """What is missing is named; where all is there, nothing is said."""
    folder = tmp_path / "checkpoint-500"
    folder.mkdir()
    torch.save(net().state_dict(), folder / "pytorch_model.bin")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 500}), encoding="utf-8")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth", "rng_state_2.pth"):
        if name not in gone:
            torch.save({}, folder / name)
    messages = [finding.message for finding in found(folder / "pytorch_model.bin", "O761")]
    assert messages == ([f"the folder lacks {named}"] if named else [])


@pytest.fixture
def fitted(tmp_path):
    """Trains a network with Lightning, which keeps its arguments, and gives the path of its checkpoint."""

    class Module(lightning.LightningModule):
        def __init__(self, body=None, lr=0.1, manual=False):
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(4, 2)
            self.automatic_optimization = not manual

        def training_step(self, batch, number):
            loss = self.layer(batch[0]).sum()
            if not self.automatic_optimization:
                self.optimizers().zero_grad()
                self.manual_backward(loss)
                self.optimizers().step()
            return loss

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters())
            return [optimizer], [lr_scheduler.StepLR(optimizer, 1)]

    def train(*, body=None, manual=False, resume=None, **options):
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        options |= {"accelerator": "cpu", "enable_model_summary": False, "default_root_dir": tmp_path, **quiet}
        trainer, module = lightning.Trainer(**options), Module(body=body, manual=manual)
        trainer.fit(module, DataLoader(TensorDataset(torch.ones(12, 4)), batch_size=2), ckpt_path=resume)
        trainer.save_checkpoint(tmp_path / "a.ckpt")
        return tmp_path / "a.ckpt"

    return train


def test_numbers_beyond_all_measure(tmp_path):
    """Integers of thousands of digits, and rates of infinity, where counters and scales should be."""
    huge = 10**5000
    scaler = {**torch.amp.GradScaler("cpu").state_dict(), "scale": huge}
    groups = [{"lr": huge, "params": [0]}]
    contents = {
        "pytorch-lightning_version": "2.4.0",
        "epoch": huge,
        "global_step": -huge,
        "state_dict": net().state_dict(),
        "scaler": scaler,
        "optimizer": {"state": {0: {"step": huge}}, "param_groups": groups},
        "scheduler": {"last_epoch": huge, "_step_count": 1, "base_lrs": [huge], "_last_lr": [float("inf")]},
        "loops": {"fit_loop": {"epoch_progress": {"current": {"completed": huge}}}},
    }
    torch.save(contents, tmp_path / "a.pt")
    assert said(tmp_path / "a.pt") == []


LIGHTNING = [{"max_epochs": 2}, {"max_steps": 4}, {"max_epochs": 1, "accumulate_grad_batches": 2}]


@real
@pytest.mark.filterwarnings("ignore")  # Lightning's advice about workers, and its own use of torch
@pytest.mark.parametrize("manual", [False, True], ids=["automatic", "manual"])
def test_what_lightning_writes_is_healthy(fitted, manual):
    """After epochs, in the midst of one, with gradients of two batches: its counters agree."""
    for options in LIGHTNING[: 2 if manual else 3]:
        assert said(fitted(manual=manual, **options)) == []


@real
@pytest.mark.filterwarnings("ignore")
def test_weights_only_of_lightning(fitted):
    """Its trainer refuses to resume with the quoted line."""
    path = fitted(max_epochs=1)
    contents = loads(path)
    torch.save(
        {key: value for key, value in contents.items() if key not in ("optimizer_states", "lr_schedulers")}, path
    )
    (finding,) = said(path)
    assert (finding.code, finding.severity) == ("O754", Severity.INFO)
    with pytest.raises(KeyError) as caught:
        fitted(max_epochs=2, resume=path)
    assert finding.torch_says[0] in str(caught.value)


@real
@pytest.mark.filterwarnings("ignore")
def test_counters_that_were_changed(fitted):
    """An epoch and a step that were set to zero, and what the loops have."""
    path = fitted(max_epochs=3)
    contents = loads(path)
    torch.save({**contents, "epoch": 0, "global_step": 0}, path)
    assert [finding.code for finding in said(path)] == ["O759", "O759"]


@real
@pytest.mark.filterwarnings("ignore")
def test_a_network_among_the_hyper_parameters(fitted):
    """Information; the repair puts the name of its class there, and torch loads the file without any class."""
    path = fitted(body=torch.nn.Linear(64, 64), max_epochs=1)
    (finding,) = said(path)
    assert (finding.code, finding.severity) == ("O762", Severity.INFO)
    output = path.with_name("b.ckpt")
    selection = Selection(select=("O762",))
    repair(plan(FixRequest(str(path), output=str(output), selection=selection, unsafe=True)))
    assert loads(output)["hyper_parameters"]["body"] == "torch.nn.modules.linear.Linear"
    assert output.stat().st_size < path.stat().st_size - 64 * 64 * 4
    assert said(output) == []
