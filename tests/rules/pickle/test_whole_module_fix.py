"""The fix of P204 on models that torch pickled whole: afterwards they are what ``model.state_dict()`` gives."""

from __future__ import annotations

import json
import re
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import nn

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.edits import Safety
from ckptdoctor.errors import RefusedError
from ckptdoctor.examine.file import check
from ckptdoctor.rendering import fix_json, fix_text
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import Outcome, preview, repair
from ckptdoctor.repair.request import FixRequest
from tests.builders import saving_tags, tagged
from tests.rules.examined import found

KINDS = pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])


class Net(nn.Module):
    """A user's model: batch norm, tied weights, no bias, buffers of every sort, lists, a list that leads back."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4)])
        self.named = nn.ModuleDict({"a": nn.InstanceNorm1d(2, affine=True, track_running_stats=True)})
        self.scales = nn.ParameterList([torch.ones(2), torch.zeros(3)])
        self.attention = nn.MultiheadAttention(4, 2)
        self.rnn = nn.LSTM(2, 3, bidirectional=True)
        self.blocks[1].weight = self.blocks[0][0].weight
        self.fp16 = nn.Parameter(torch.randn(3).half())
        self.register_parameter("nothing", None)
        self.register_buffer("none", None)
        self.register_buffer("kept", torch.arange(6.0).view(2, 3).t())
        self.register_buffer("empty", torch.zeros(0, 3))
        self.register_buffer("passing", torch.ones(100), persistent=False)
        self.later = None
        self.names, self.stride, self.me = ["cat", "dog"], torch.tensor([8.0]), [self]


def saved(contents: object, path: Path, legacy: bool = False) -> Path:
    with saving_tags():
        torch.save(contents, path, _use_new_zipfile_serialization=not legacy)
    return path


def fixed(path: Path, select: str | None = None, **asked: object) -> Outcome:
    selection = Selection() if select is None else Selection(select=(select,))
    return repair(plan(FixRequest(str(path), selection=selection, **asked)))


def loaded(outcome: Outcome) -> object:
    assert outcome.proof is not None
    return torch.load(outcome.plan.output, weights_only=True, map_location="cpu")


def assert_equal(got: object, wanted: OrderedDict) -> None:
    """Keys in order, values, strides and dtypes, no gradients, and the same keys that share a storage."""
    assert isinstance(got, OrderedDict)
    assert list(got) == list(wanted)
    for key, tensor in wanted.items():
        assert torch.equal(got[key], tensor)
        assert (got[key].dtype, got[key].stride()) == (tensor.dtype, tensor.stride())
        assert type(got[key]) is torch.Tensor
        assert not got[key].requires_grad
    assert ties(got) == ties(wanted)


def ties(state_dict: OrderedDict) -> dict[str, str]:
    """Each key with the first key that has the same storage."""
    first: dict[int, str] = {}
    sized = {key: tensor for key, tensor in state_dict.items() if tensor.numel()}
    return {key: first.setdefault(tensor.untyped_storage().data_ptr(), key) for key, tensor in sized.items()}


@KINDS
def test_a_model_becomes_its_state_dict(tmp_path: Path, legacy: bool):
    """Without the code, plain ``fix`` gives what ``state_dict()`` gives, and a new model loads it strictly."""
    model = Net()
    path = saved(model, tmp_path / "a.pt", legacy)
    (finding,) = found(path, "P204")
    assert finding.fix is not None
    assert (finding.fix.safety, finding.fix.option) == (Safety.SAFE, "--select P204")
    outcome = fixed(path)
    assert_equal(loaded(outcome), model.state_dict())
    Net().load_state_dict(loaded(outcome), strict=True)
    assert outcome.proof.identical == outcome.proof.storages
    assert [each for each in check(outcome.plan.output).findings if each.severity.value == "error"] == []


def test_what_stays_behind_is_said(tmp_path: Path):
    """Attributes of the user's class in the finding; tensors that no state dict holds in the plan."""
    path = saved(Net(), tmp_path / "a.pt")
    (finding,) = found(path, "P204")
    assert "later, names, stride, …" in finding.advice
    change = plan(FixRequest(str(path))).steps[0].changes[0]
    assert change.kind == "flatten"
    assert change.counts == ((len(Net().state_dict()), "tensor"), (2, "tensor left out"))
    assert ("_modules/conv/_parameters/weight", "conv.weight") in change.pairs


def test_people_are_shown_what_becomes_of_it(tmp_path: Path):
    """The plan names the model's place; --diff and JSON list every tensor with its key."""
    path = saved({"net": nn.Linear(2, 2), "epoch": 3}, tmp_path / "a.pt")
    report = fixed(path).report
    assert "P204 whole-module-pickle   net  →  its state dict   2 tensors\n" in fix_text.outcome(report)
    assert 'torch.load("' in fix_text.outcome(report)
    assert "-_parameters/weight\n+weight\n" in fix_text.difference(report)
    (change,) = json.loads(fix_json.render(report, "1"))["steps"][0]["changes"]
    assert (change["kind"], change["place"], change["counts"]) == ("flatten", "net", {"tensor": 2})
    assert change["pairs"] == [["_parameters/weight", "weight"], ["_parameters/bias", "bias"]]
    whole = plan(FixRequest(str(saved(nn.PReLU(), tmp_path / "b.pt"))))
    assert "the whole model  →  its state dict   1 tensor" in fix_text.outcome(preview(whole))


@KINDS
def test_models_inside_a_checkpoint_are_replaced_in_their_places(tmp_path: Path, legacy: bool):
    """As YOLO saves them: everything beside the models stays, and one model under two keys keeps its ties."""
    model, averaged = Net(), nn.Linear(2, 2).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    contents = {
        "epoch": 3,
        "model": model,
        "ema": averaged,
        "best": [model, (nn.BatchNorm1d(2), "text")],
        "weight": model.conv.weight,
        "optimizer": optimizer.state_dict(),
        "loss": nn.CrossEntropyLoss(),
    }
    got = loaded(fixed(saved(contents, tmp_path / "a.pt", legacy)))
    assert list(got) == list(contents)
    assert_equal(got["model"], model.state_dict())
    assert_equal(got["best"][0], model.state_dict())
    assert_equal(got["best"][1][0], contents["best"][1][0].state_dict())
    assert_equal(got["ema"], averaged.state_dict())
    assert got["loss"] == OrderedDict()
    assert (got["epoch"], got["best"][1][1], got["optimizer"]) == (3, "text", optimizer.state_dict())
    assert isinstance(got["weight"], nn.Parameter)
    assert (
        len({each.data_ptr() for each in (got["weight"], got["model"]["conv.weight"], got["best"][0]["conv.weight"])})
        == 1
    )


def test_wrappers_are_undone_in_the_same_run(tmp_path: Path):
    """DataParallel's ``module.`` and torch.compile's ``_orig_mod.`` go with the fixes of the keys."""
    model = Net()
    path = saved(nn.DataParallel(model), tmp_path / "a.pt")
    assert_equal(loaded(fixed(path, "P204", output=str(tmp_path / "w.pt"))), nn.DataParallel(model).state_dict())
    outcome = fixed(path)
    assert [step.label for step in outcome.plan.steps] == ["P204", "N401"]
    assert_equal(loaded(outcome), model.state_dict())


def test_a_compiled_model_is_a_call_of_its_wrapper(tmp_path: Path):
    """torch.compile pickles as a call with the model; P204 speaks for all that it names."""
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    path = saved(torch.compile(model, backend="eager"), tmp_path / "a.pt")
    assert sorted({each.code for each in check(str(path)).findings}) == ["P204"]
    assert_equal(
        loaded(fixed(path, "P204", output=str(tmp_path / "w.pt"))), torch.compile(model, backend="eager").state_dict()
    )
    outcome = fixed(path)
    assert [step.label for step in outcome.plan.steps] == ["P204", "N404"]
    assert_equal(loaded(outcome), model.state_dict())
    assert outcome.proof.findings == ()


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning", "ignore:.*spectral_norm.*:FutureWarning")
@pytest.mark.parametrize("normed", [nn.utils.weight_norm, nn.utils.spectral_norm], ids=["weight", "spectral"])
def test_normalised_weights_come_as_their_parts(tmp_path: Path, normed):
    """The derived weight is no part of a state dict; the hook of spectral_norm changes nothing but the _metadata."""
    model = normed(nn.Linear(3, 3))
    got = loaded(fixed(saved(model, tmp_path / "a.pt")))
    assert_equal(got, model.state_dict())
    normed(nn.Linear(3, 3)).load_state_dict(got, strict=True)


def test_device_tags_stay_with_their_storages(tmp_path: Path):
    """A model on GPUs: its state dict says so, until --to-cpu."""
    model = nn.Linear(2, 2)
    for number, parameter in enumerate(model.parameters()):
        tagged(parameter.data, f"cuda:{number}")
    path = saved(model, tmp_path / "a.pt")
    devices = [
        tensor.device for tensor in plan(FixRequest(str(path), selection=Selection(select=("P204",)))).expected.tensors
    ]
    assert devices == ["cuda:0", "cuda:1"]
    assert_equal(loaded(fixed(path, "P204", to_cpu=True)), model.state_dict())


def test_tensors_in_attributes_of_parameters_go_with_a_model_that_is_the_whole_file(tmp_path: Path):
    """They are in no state dict; beside other things nobody knows whose storages they are, so that is refused."""
    model = nn.Linear(2, 2)
    model.weight.extra = torch.ones(7)
    got = loaded(fixed(saved(model, tmp_path / "a.pt")))
    assert_equal(got, model.state_dict())
    (finding,) = found(saved({"model": model}, tmp_path / "b.pt"), "P204")
    assert finding.fix is None
    assert "belong to no known tensor" in finding.cause


def test_parts_of_tensors_are_shown(tmp_path: Path):
    """The storages of a sparse tensor beside a model are those of its parts, and hinder nothing."""
    saved({"net": nn.Linear(2, 3), "graph": torch.eye(3).to_sparse()}, tmp_path / "model.pt")
    (finding,) = found(tmp_path / "model.pt", "P204")
    assert finding.fix is not None


def add_nothing(module: nn.Module, state_dict: OrderedDict, prefix: str, metadata: object) -> None:
    state_dict[f"{prefix}added"] = torch.ones(1)


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.fc.register_state_dict_post_hook(add_nothing)


def test_hooks_make_it_unsafe(tmp_path: Path):
    """What hooks would do is not done, so the repair must be asked for."""
    model = Hooked()
    path = saved({"a": model, "b": nn.PReLU()}, tmp_path / "a.pt")
    safe, unsafe = found(path, "P204")
    assert (safe.keys, unsafe.keys) == ((("b",),), (("a",),))
    assert unsafe.fix is not None
    assert unsafe.fix.safety is Safety.UNSAFE
    assert "fc has hooks (_state_dict_hooks)." in unsafe.cause
    got = torch.load(fixed(path).plan.output, weights_only=False)
    assert isinstance(got["a"], Hooked)
    assert isinstance(got["b"], OrderedDict)
    got = loaded(fixed(path, unsafe=True, output=str(tmp_path / "u.pt")))
    assert list(got["a"]) == ["fc.weight", "fc.bias"]


class Trainer:
    """An object around a model."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(2))


def within_itself() -> nn.Module:
    model = nn.Sequential(nn.Linear(1, 1))
    model._modules["again"] = model
    return model


def with_state(**state: object) -> nn.Module:
    model = nn.Linear(1, 1)
    model.__dict__.update(state)
    return model


def deep() -> nn.Module:
    model: nn.Module = nn.Linear(1, 1)
    for _ in range(100):
        model = nn.Sequential(model)
    return model


def colliding() -> nn.Module:
    model = nn.Sequential(OrderedDict({"a": nn.Linear(1, 1)}))
    model._parameters["a.bias"] = nn.Parameter(torch.ones(1))
    return model


def quantized() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)))


REFUSED = {
    "lazy": (lazy, "0.weight is torch.nn.parameter.UninitializedParameter, not a tensor"),
    "cycle": (within_itself, "again contains itself"),
    "modules in a list": (lambda: with_state(_modules=[1]), "_modules of the model itself is list, not a dict"),
    "no buffers": (lambda: with_state(_buffers=None), "_buffers of the model itself is missing"),
    "numbers as names": (
        lambda: with_state(_parameters={1: torch.ones(1)}),
        "_parameters of the model itself has keys",
    ),
    "no tensor": (lambda: with_state(_parameters={"w": 1.5}), "w is float, not a tensor"),
    "no module": (lambda: with_state(_modules={"m": Trainer(None)}), "m is .*Trainer, not a module"),
    "odd set": (lambda: with_state(_non_persistent_buffers_set={1}), "is not a set of names"),
    "two of one key": (colliding, "two of its tensors would get the key a.bias"),
    "too deep": (deep, "was not read"),
    "within an object": (lambda: Trainer(nn.Linear(1, 1)), "belongs to an object that needs its own code"),
    "in a set": (lambda: {"x": {nn.Linear(1, 1)}}, "belongs to an object that needs its own code"),
    "nothing to keep": (lambda: nn.Sequential(nn.ReLU()), "neither parameters nor buffers"),
    "quantized": (quantized, "packs its weights"),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_told_is_left_with_the_reason(tmp_path: Path, make, reason: str):
    """One sentence, no repair, and the way to do it with the code."""
    path = saved(make(), tmp_path / "a.pt")
    (finding,) = found(path, "P204")
    assert finding.fix is None
    cause = finding.cause.split("Without that code the state dict cannot be determined: ")[1]
    assert cause.endswith(".")
    assert re.search(reason, cause)
    assert "state_dict()" in finding.advice
    assert fixed(path, "P204").written is None


def test_lost_bytes_are_not_hidden(tmp_path: Path):
    """A storage that has no record in the archive refuses the repair."""
    path = saved(nn.Linear(2, 2), tmp_path / "a.pt")
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(tmp_path / "b.pt", "w") as holed:
        for name in whole.namelist():
            if not name.endswith("data/1"):
                holed.writestr(name, whole.read(name))
    with pytest.raises(RefusedError, match=r"torage 1 .* has no record.*ckptdoctor salvage "):
        fixed(tmp_path / "b.pt", "P204")


@pytest.mark.slow
def test_a_model_of_thousands_of_layers_takes_its_time_once(tmp_path: Path):
    """Flat lists of modules are looked up once, not once for each of their tensors."""
    model = nn.ModuleList([nn.PReLU() for _ in range(1500)])
    got = loaded(fixed(saved(model, tmp_path / "a.pt")))
    assert_equal(got, model.state_dict())
