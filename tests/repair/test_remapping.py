"""``fix --remap-optimizer``: training goes on with a rearranged model as if nothing had been rearranged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.errors import RefusedError
from ckptdoctor.examine.file import check
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import Outcome, repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.target.mapping import from_module
from tests.commands import run
from tests.libraries import real, transformers
from tests.repair.applying import assert_all_proven
from tests.target.asked import of_checkpoint


class Old(nn.Module):
    """Layers of one shape among others, a norm with its buffers, a tied weight, one that is not trained."""

    NAMES = ("embed", "one", "norm", "two", "gain", "head")

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        made: dict[str, nn.Module] = {
            "embed": nn.Linear(6, 8, bias=False),
            "one": nn.Linear(8, 8),
            "two": nn.Linear(8, 8),
            "norm": nn.BatchNorm1d(8),
            "gain": nn.LayerNorm(8),
            "head": nn.Linear(8, 3),
        }
        for name in self.NAMES:
            setattr(self, name, made[name])

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.norm(torch.tanh(self.one(self.embed(rows))))
        result: torch.Tensor = self.head(self.gain(torch.tanh(self.two(hidden))))
        return result


class New(Old):
    """The same network, its layers defined in another order: layers of one shape have changed places."""

    NAMES = ("head", "two", "gain", "one", "embed", "norm")


def _parameters(net: nn.Module) -> Iterable[Any]:
    return net.parameters()


def _named(net: nn.Module) -> Iterable[Any]:
    return net.named_parameters()


def _decay(net: nn.Module) -> Iterable[Any]:
    large = [each for each in net.parameters() if each.dim() > 1]
    small = [each for each in net.parameters() if each.dim() <= 1]
    return [{"params": large, "weight_decay": 0.1}, {"params": small, "weight_decay": 0.0}]


def _layers(net: nn.Module) -> Iterable[Any]:
    head = [(name, each) for name, each in net.named_parameters() if name.startswith("head")]
    rest = [(name, each) for name, each in net.named_parameters() if not name.startswith("head")]
    return [{"params": rest, "lr": 0.003}, {"params": head, "lr": 0.01}]


def _transformers(given: Any, lr: float) -> torch.optim.Optimizer:
    made: torch.optim.Optimizer = transformers.Adafactor(given, lr=lr, scale_parameter=False, relative_step=False)
    return made


GIVEN = {"all": _parameters, "named": _named, "decay and none": _decay, "named groups": _layers}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD with momentum": lambda given: torch.optim.SGD(given, lr=0.01, momentum=0.9),
    "Adam": lambda given: torch.optim.Adam(given, lr=0.01),
    "AdamW, amsgrad": lambda given: torch.optim.AdamW(given, lr=0.01, amsgrad=True, foreach=False),
    "Adafactor": lambda given: torch.optim.Adafactor(given, lr=0.01),
    "RMSprop": lambda given: torch.optim.RMSprop(given, lr=0.001, momentum=0.5, centered=True),
    "ASGD": lambda given: torch.optim.ASGD(given, lr=0.01),
    "Adafactor of transformers": lambda given: _transformers(given, 0.01),
}


def _train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        torch.manual_seed(step)
        optimizer.zero_grad()
        rows = torch.randn(16, 6)
        (net(rows) - rows[:, :3].cumsum(1)).pow(2).mean().backward()
        optimizer.step()


def _moments(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    return {name: dict(optimizer.state[each]) for name, each in net.named_parameters() if each in optimizer.state}


def _assert_alike(one: dict[str, dict[str, Any]], other: dict[str, dict[str, Any]]) -> None:
    assert one.keys() == other.keys()
    for name, kept in one.items():
        assert kept.keys() == other[name].keys()
        for part, value in kept.items():
            same = (
                torch.equal(value, other[name][part]) if isinstance(value, torch.Tensor) else value == other[name][part]
            )
            assert same, f"{part} of {name}"


def _fixed(path: Path, reference: Reference | None, **asked: Any) -> Outcome:
    request = FixRequest(str(path), remap_optimizer=True, reference=reference, force=True, **asked)
    outcome = repair(plan(request))
    assert_all_proven(outcome)
    return outcome


def _refusal(path: Path, reference: Reference | None, **asked: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        plan(FixRequest(str(path), remap_optimizer=True, reference=reference, **asked))
    return caught.value.message


def _like(net: nn.Module, optimizer: torch.optim.Optimizer | None, path: Path) -> Reference:
    state = {"model": net.state_dict(), **({} if optimizer is None else {"optimizer": optimizer.state_dict()})}
    torch.save(state, path)
    return of_checkpoint(str(path))


def _run(
    folder: Path, make: Callable[..., torch.optim.Optimizer], given: Callable[[nn.Module], Iterable[Any]], **saving: Any
) -> tuple[Path, Old, torch.optim.Optimizer]:
    net = Old()
    optimizer = make(given(net))
    _train(net, optimizer, range(3))
    path = folder / "run.pt"
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path, **saving)
    return path, net, optimizer


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("name", [pytest.param(each, marks=[real] * ("transformers" in each)) for each in OPTIMIZERS])
def test_training_goes_on_as_if_the_model_had_never_changed(name: str, given: str, tmp_path: Path) -> None:
    """After three steps more, every weight and every moment is bit for bit that of a run with the old definition."""
    path, net, optimizer = _run(tmp_path, OPTIMIZERS[name], GIVEN[given])
    outcome = _fixed(path, from_module(New(), "nets:New"))
    saved = torch.load(outcome.plan.output, weights_only=True)
    new = New()
    resumed = OPTIMIZERS[name](GIVEN[given](new))
    new.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    _assert_alike(_moments(net, optimizer), _moments(new, resumed))
    _train(net, optimizer, range(3, 6))
    _train(new, resumed, range(3, 6))
    _assert_alike(_moments(net, optimizer), _moments(new, resumed))
    there = new.state_dict()
    assert all(torch.equal(each, there[key]) for key, each in net.state_dict().items())


@pytest.mark.parametrize("saving", [{"_use_new_zipfile_serialization": False}, {"pickle_protocol": 4}])
def test_every_way_of_torch_save_is_repaired(saving: dict[str, Any], tmp_path: Path) -> None:
    """The file is written as torch's own state_dict() of the rearranged run would be: same keys, same order."""
    path, net, optimizer = _run(tmp_path, OPTIMIZERS["Adam"], _named, **saving)
    outcome = _fixed(path, from_module(New(), "nets:New"))
    # our own file; of protocols but 2 weights_only warns
    saved = torch.load(outcome.plan.output, weights_only=False)
    new = New()
    resumed = torch.optim.Adam(new.named_parameters(), lr=0.01)
    new.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    assert list(saved["model"]) == list(new.state_dict())
    assert saved["optimizer"]["param_groups"] == resumed.state_dict()["param_groups"]
    assert saved["optimizer"]["state"].keys() == resumed.state_dict()["state"].keys()
    _assert_alike(_moments(net, optimizer), _moments(new, resumed))


def test_without_the_repair_moments_go_astray(tmp_path: Path) -> None:
    """What the repair is for: torch loads the file without a word, and gives parameters the moments of others."""
    path, net, optimizer = _run(tmp_path, OPTIMIZERS["Adam"], _parameters)
    new = New()
    resumed = torch.optim.Adam(new.parameters(), lr=0.01)
    resumed.load_state_dict(torch.load(path)["optimizer"])
    assert not torch.equal(
        _moments(net, optimizer)["one.bias"]["exp_avg"], _moments(new, resumed)["one.bias"]["exp_avg"]
    )


@pytest.mark.parametrize("given", [_parameters, _named])
def test_groups_are_split_as_the_other_file_has_them(given: Callable[..., Any], tmp_path: Path) -> None:
    """One group becomes two, as in a file of the target; both keep the options that their parameters had."""
    path, net, optimizer = _run(tmp_path, OPTIMIZERS["AdamW, amsgrad"], given)
    new = New()
    fresh = OPTIMIZERS["AdamW, amsgrad"](_decay(new))
    _train(new, fresh, range(1))
    outcome = _fixed(path, _like(new, fresh, tmp_path / "like.pt"))
    new, saved = New(), torch.load(outcome.plan.output)
    resumed = OPTIMIZERS["AdamW, amsgrad"](_decay(new))
    resumed.load_state_dict(saved["optimizer"])
    _assert_alike(_moments(net, optimizer), _moments(new, resumed))
    assert [group["weight_decay"] for group in resumed.param_groups] == [0.01, 0.01]


def test_groups_are_joined_where_their_options_agree(tmp_path: Path) -> None:
    """Two groups become one; with other options each, that is refused."""
    for decay, path in ((0.1, tmp_path / "same"), (0.0, tmp_path / "other")):
        path.mkdir()

        def two(net: nn.Module, decay: float = decay) -> list[dict[str, Any]]:
            return [{**group, "weight_decay": decay or group["weight_decay"]} for group in _decay(net)]

        run, net, optimizer = _run(path, torch.optim.AdamW, two)
        new = New()
        like = _like(new, torch.optim.AdamW(new.parameters()), path / "like.pt")
        if not decay:
            assert "joins parameters that have other options here" in _refusal(run, like)
            continue
        saved = torch.load(_fixed(run, like).plan.output)
        resumed = torch.optim.AdamW(new.parameters())
        resumed.load_state_dict(saved["optimizer"])
        _assert_alike(_moments(net, optimizer), _moments(new, resumed))


def test_frozen_parameters_come_back(tmp_path: Path) -> None:
    """An optimizer over the trained parameters becomes one over all: the others have no state, and get one."""
    net = Old()
    trained = [(name, each) for name, each in net.named_parameters() if not name.startswith("embed")]
    optimizer = torch.optim.Adam([each for _, each in trained], lr=0.01)
    _train(net, optimizer, range(3))
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "run.pt")
    new = New()
    like = _like(new, torch.optim.Adam(new.parameters(), lr=0.01), tmp_path / "like.pt")
    saved = torch.load(_fixed(tmp_path / "run.pt", like).plan.output)
    resumed = torch.optim.Adam(new.parameters(), lr=0.01)
    resumed.load_state_dict(saved["optimizer"])
    _assert_alike(_moments(net, optimizer), _moments(new, resumed))
    _train(new, resumed, range(3, 4))
    assert len(_moments(new, resumed)) == len(list(new.parameters()))


def test_a_model_with_frozen_parameters_tells_which_are_trained(tmp_path: Path) -> None:
    """The optimizer over all that were trained then, held against a model that says what is trained now."""
    net, new = Old(), New()
    for each in (net.embed, new.embed):
        each.requires_grad_(False)
    optimizer = torch.optim.Adam([each for each in net.parameters() if each.requires_grad], lr=0.01)
    _train(net, optimizer, range(3))
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "run.pt")
    saved = torch.load(_fixed(tmp_path / "run.pt", from_module(new, "nets:New")).plan.output)
    resumed = torch.optim.Adam([each for each in new.parameters() if each.requires_grad], lr=0.01)
    resumed.load_state_dict(saved["optimizer"])
    _assert_alike(_moments(net, optimizer), _moments(new, resumed))


def test_states_are_dropped_only_where_that_is_accepted(tmp_path: Path) -> None:
    """A target without a layer: its states are lost, which --unsafe-fixes has to accept."""
    path, net, optimizer = _run(tmp_path, OPTIMIZERS["Adam"], _named)
    new = New()
    del new.two
    reference = from_module(new, "nets:Less")
    assert "add --unsafe-fixes" in _refusal(path, reference)
    saved = torch.load(_fixed(path, reference, unsafe=True).plan.output)
    resumed = torch.optim.Adam(new.named_parameters(), lr=0.01)
    resumed.load_state_dict(saved["optimizer"])
    expected = {name: kept for name, kept in _moments(net, optimizer).items() if not name.startswith("two")}
    _assert_alike(expected, _moments(new, resumed))


def test_what_shapes_cannot_tell_is_refused_by_name(tmp_path: Path) -> None:
    """An optimizer that was given its parameters in an order of its own: those of one shape are named."""
    net = Old()
    optimizer = torch.optim.Adam(list(net.parameters())[::-1])
    _train(net, optimizer, range(2))
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "run.pt")
    told = _refusal(tmp_path / "run.pt", from_module(New(), "nets:New"))
    assert told.startswith("optimizer cannot be renumbered: shapes do not show which of one.weight, one.bias")


def test_some_frozen_among_equals_are_refused(tmp_path: Path) -> None:
    """One of two layers of a shape was trained, and nothing says which."""
    net = nn.Sequential(*[nn.Linear(4, 4, bias=False) for _ in range(3)], nn.Linear(4, 2))
    optimizer = torch.optim.Adam([*net[1].parameters(), *net[3].parameters()])
    net(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "run.pt")
    assert "0.weight, 1.weight, 2.weight" in _refusal(tmp_path / "run.pt", from_module(net, "nets:Net"))


def test_the_state_of_all_at_once_is_refused(tmp_path: Path) -> None:
    """LBFGS keeps vectors over all parameters: no number of them can change."""
    net = Old()
    optimizer = torch.optim.LBFGS(net.parameters())

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        total = net(torch.ones(4, 6)).pow(2).sum()
        total.backward()
        return total

    optimizer.step(loss)
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "run.pt")
    assert "at once" in _refusal(tmp_path / "run.pt", from_module(New(), "nets:New"))


def test_wrapped_weights_are_renamed_and_their_optimizer_follows(tmp_path: Path) -> None:
    """With --auto the weights stay beside the optimizer, and both fit the target in one go."""
    net = Old()
    wrapped = nn.Module()
    wrapped.module = net
    optimizer = torch.optim.Adam(wrapped.named_parameters(), lr=0.01)
    _train(net, optimizer, range(3))
    torch.save({"state_dict": wrapped.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "run.pt")
    saved = torch.load(_fixed(tmp_path / "run.pt", from_module(New(), "nets:New"), auto=True).plan.output)
    new = New()
    resumed = torch.optim.Adam(new.named_parameters(), lr=0.01)
    new.load_state_dict(saved["state_dict"])
    resumed.load_state_dict(saved["optimizer"])
    _assert_alike(_moments(net, optimizer), _moments(new, resumed))
    assert saved["optimizer"]["param_groups"] == resumed.state_dict()["param_groups"]


def test_auto_includes_it_towards_a_file_of_the_same_layout(tmp_path: Path) -> None:
    """``fix --auto --like other.pt`` brings weights and optimizer, when both files are training checkpoints."""
    path, net, optimizer = _run(tmp_path, OPTIMIZERS["Adam"], _parameters)
    new = New()
    like = _like(new, torch.optim.Adam(new.parameters()), tmp_path / "like.pt")
    outcome = repair(plan(FixRequest(str(path), auto=True, reference=like)))
    assert [step.label for step in outcome.plan.steps] == ["O752"]
    resumed = torch.optim.Adam(new.parameters())
    resumed.load_state_dict(torch.load(outcome.plan.output)["optimizer"])
    _assert_alike(_moments(net, optimizer), _moments(new, resumed))


def test_both_optimizers_of_lightning_are_brought_along(tmp_path: Path) -> None:
    """``optimizer_states``: one optimizer for each half of the network."""
    net, new = Old(), New()

    def halves(net: Old) -> list[torch.optim.Optimizer]:
        late = [each for each in net.named_parameters() if each[0].startswith(("two", "gain", "head"))]
        early = [each for each in net.named_parameters() if not each[0].startswith(("two", "gain", "head"))]
        return [torch.optim.Adam(early), torch.optim.SGD(late, lr=0.01, momentum=0.9)]

    optimizers = halves(net)
    for each in optimizers:
        _train(net, each, range(2))
    states = [each.state_dict() for each in optimizers]
    run = {"pytorch-lightning_version": "2.4.0", "state_dict": net.state_dict(), "optimizer_states": states}
    torch.save(run, tmp_path / "run.ckpt")
    saved = torch.load(_fixed(tmp_path / "run.ckpt", from_module(new, "nets:New")).plan.output)
    for old, resumed, state in zip(optimizers, halves(new), saved["optimizer_states"], strict=True):
        resumed.load_state_dict(state)
        _assert_alike(_moments(net, old), _moments(new, resumed))


def test_a_parameter_that_is_new_begins_without_a_state(tmp_path: Path) -> None:
    """The target has a layer more: it is numbered, and the file by itself is as healthy as before."""
    path, net, optimizer = _run(tmp_path, OPTIMIZERS["Adam"], _parameters)
    new = New()
    new.extra = nn.Linear(5, 5)
    saved_at = _fixed(path, from_module(new, "nets:More")).plan.output
    resumed = torch.optim.Adam(new.parameters())
    resumed.load_state_dict(torch.load(saved_at)["optimizer"])
    _assert_alike(_moments(net, optimizer), _moments(new, resumed))
    chosen = Settings(selection=Selection(select=("O751", "O752")))
    assert check(saved_at, chosen).findings == ()


def test_the_command_runs_the_users_code_and_says_what_it_did(tmp_path: Path) -> None:
    """``--model`` alone needs no --auto beside --remap-optimizer; the finding of check names the command."""
    saved = Old()
    optimizer = torch.optim.Adam(saved.parameters(), lr=0.01)
    _train(saved, optimizer, range(2))
    torch.save({"model": saved.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "run.pt")
    target = f"{Path(__file__)}:New"
    told = run("check", "run.pt", "--model", target, cwd=tmp_path)
    assert b"--remap-optimizer --model" in told.stdout
    done = run("fix", "run.pt", "--remap-optimizer", "--model", target, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    new = New()
    resumed = torch.optim.Adam(new.parameters(), lr=0.01)
    resumed.load_state_dict(torch.load(tmp_path / "run.fixed.pt")["optimizer"])
    _assert_alike(_moments(saved, optimizer), _moments(new, resumed))


def test_an_optimizer_in_order_is_left_alone(tmp_path: Path) -> None:
    """Nothing to do is nothing done, and a second repair finds nothing."""
    path, _, _ = _run(tmp_path, OPTIMIZERS["Adam"], _decay)
    assert plan(FixRequest(str(path), remap_optimizer=True, reference=from_module(Old(), "nets:Old"))).recipe is None
    output = _fixed(path, from_module(New(), "nets:New")).plan.output
    assert plan(FixRequest(output, remap_optimizer=True, reference=from_module(New(), "nets:New"))).recipe is None
    assert plan(FixRequest(output, remap_optimizer=True)).recipe is None


def test_weights_alone_have_nothing_to_number(tmp_path: Path) -> None:
    """Without an optimizer in the file, the wish is refused."""
    torch.save(Old().state_dict(), tmp_path / "x.pt")
    assert "no optimizer state" in _refusal(tmp_path / "x.pt", None)


@pytest.mark.slow
def test_many_parameters_in_many_groups_are_brought_along(tmp_path: Path) -> None:
    """A thousand groups become one: whole lists are written at once."""
    number = 1_000
    model = {f"layer{index}.weight": torch.zeros(1 + index % 7) for index in range(number)}
    state = {index: {"momentum_buffer": torch.full_like(each, index)} for index, each in enumerate(model.values())}
    apart = [{"lr": 0.1, "params": [index], "param_names": [name]} for index, name in enumerate(model)]
    turned = dict(reversed(model.items()))
    joined = [{"lr": 0.1, "params": list(range(number)), "param_names": list(turned)}]
    torch.save({"model": model, "optimizer": {"state": state, "param_groups": apart}}, tmp_path / "run.pt")
    torch.save({"model": turned, "optimizer": {"state": {}, "param_groups": joined}}, tmp_path / "like.pt")
    reference = of_checkpoint(str(tmp_path / "like.pt"))
    saved = torch.load(_fixed(tmp_path / "run.pt", reference).plan.output)
    assert saved["optimizer"]["param_groups"] == joined
    assert list(saved["model"]) == list(turned)
    for index, kept in saved["optimizer"]["state"].items():
        assert kept["momentum_buffer"].unique().tolist() == [number - 1 - index]
