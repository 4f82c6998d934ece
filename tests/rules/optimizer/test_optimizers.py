"""O751 optimizer-group-mismatch and O752 optimizer-order-mismatch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Finding, Severity
from ckptdoctor.rules.examples import T
from tests.rules.examined import find_one, sick
from tests.rules.nouns import findings


class Net(nn.Module):
    """A bit of everything: norms, buffers of every kind, tied weights, old and new weight norms, a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(11)])
        self.embed = nn.Embedding(10, 8)
        self.out = nn.Linear(8, 10)
        self.out.weight = self.embed.weight
        self.spectral = nn.utils.spectral_norm(nn.Linear(10, 6))
        self.weighted = nn.utils.parametrizations.weight_norm(nn.Linear(6, 5))
        self.register_buffer("mean", torch.zeros(8))
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.norm(self.conv(images)).mean((2, 3)) + self.mean
        for block in self.blocks:
            features = block(features)
        result: torch.Tensor = self.weighted(self.spectral(self.out(features))) * self.scale
        return result


def _decay(net: nn.Module) -> list[dict[str, Any]]:
    large, small = (
        [(name, each) for name, each in net.named_parameters() if (each.dim() >= 2) is wanted]
        for wanted in (True, False)
    )
    return [{"params": large}, {"params": small, "weight_decay": 0.0}]


def _sorted_groups(net: nn.Module) -> list[dict[str, Any]]:
    return [{"params": [each for _, each in sorted(group["params"])]} for group in _decay(net)]


def _backwards(net: nn.Module) -> list[dict[str, Any]]:
    return [{"params": [each]} for each in reversed(list(net.parameters()))]


def _frozen(net: nn.Module) -> Iterable[nn.Parameter]:
    for each in list(net.parameters())[:4]:
        each.requires_grad_(False)
    return net.parameters()


def _trained_only(net: nn.Module) -> list[nn.Parameter]:
    return [each for each in _frozen(net) if each.requires_grad]


GIVEN: dict[str, Callable[[nn.Module], Any]] = {
    "all": lambda net: net.parameters(),
    "all with names": lambda net: net.named_parameters(),
    "decay and none, with names": _decay,
    "decay and none, sorted by name": _sorted_groups,
    "a group for each, backwards": _backwards,
    "some frozen": _frozen,
    "the frozen left out": _trained_only,
}
OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "AdamW": (torch.optim.AdamW, {}),
    "fused": (torch.optim.AdamW, {"fused": True}),
    "for loop": (torch.optim.Adam, {"foreach": False, "amsgrad": True}),
    "SGD": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "Adafactor": (torch.optim.Adafactor, {}),
    "ASGD": (torch.optim.ASGD, {}),
    "Rprop": (torch.optim.Rprop, {}),
}
WRAPPED: dict[str, Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]] = {
    "bare": lambda state: state,
    "wrapped": lambda state: {f"_orig_mod.module.{key}": each for key, each in state.items()},
}


def _stepped(net: nn.Module, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    torch.manual_seed(0)
    net(torch.randn(4, 3, 8, 8)).sum().backward()
    optimizer.step()
    return optimizer


def _found(path: Path, like: Path | None = None) -> list[Finding]:
    chosen = Selection(select=("O751", "O752"))
    report = check(str(path), Settings(selection=chosen, like=None if like is None else str(like)))
    assert report.error is None
    return list(report.findings)


def _every_pair() -> Iterable[Any]:
    """Every optimizer with all parameters, and the first with everything that may be given; then all with all."""
    first, usual = next(iter(OPTIMIZERS)), next(iter(GIVEN))
    for name in OPTIMIZERS:
        for given in GIVEN:
            yield pytest.param(name, given, marks=() if name == first or given == usual else pytest.mark.slow)


@pytest.mark.parametrize(("name", "given"), list(_every_pair()))
def test_healthy_runs_are_left_alone(name: str, given: str, tmp_path: Path) -> None:
    """Whatever the optimizer, its groups, and the wrappers: no finding, alone, beside an average or held to a model."""
    net = Net()
    make, options = OPTIMIZERS[name]
    optimizer = _stepped(net, make(GIVEN[given](net), lr=0.001, **options)).state_dict()
    like = tmp_path / "like.pt"
    torch.save(Net().state_dict(), like)
    for number, wrapped in enumerate(WRAPPED.values()):
        path = tmp_path / f"{number}.pt"
        average = {key: each.clone() for key, each in net.state_dict().items()}
        torch.save({"model": wrapped(net.state_dict()), "optimizer": optimizer, "ema": average, "epoch": 3}, path)
        assert _found(path) == []
        assert _found(path, like) == []


def test_states_in_eight_bits_tell_no_shapes(tmp_path: Path) -> None:
    """States that are blocks of bytes are of no use for shapes, and no reason for an alarm."""
    net = nn.Linear(4, 3)
    state = {n: {"step": 1, "state1": torch.zeros(9 - n, dtype=torch.uint8), "absmax1": torch.ones(1)} for n in (0, 1)}
    group = {"lr": 0.1, "betas": (0.9, 0.99), "params": [0, 1]}
    torch.save({"model": net.state_dict(), "optimizer": {"state": state, "param_groups": [group]}}, tmp_path / "x.pt")
    assert _found(tmp_path / "x.pt") == []


def test_a_flat_optimizer_is_left_alone(tmp_path: Path) -> None:
    """An optimizer over one flat copy of all parameters has a shape that no tensor has: nothing is said."""
    net = nn.Linear(4, 3)
    optimizer = {"state": {0: {"exp_avg": torch.zeros(15)}}, "param_groups": [{"params": [0]}]}
    torch.save({"model": net.state_dict(), "optimizer": optimizer}, tmp_path / "x.pt")
    assert _found(tmp_path / "x.pt") == []


def test_two_networks_leave_order_open(tmp_path: Path) -> None:
    """With a generator and a discriminator there is no telling whose optimizer it is."""
    one, other = nn.Linear(4, 3), nn.Linear(3, 4)
    optimizer = torch.optim.AdamW([*other.parameters(), *one.parameters()])
    sum((each.sum() for net in (one, other) for each in net.parameters()), torch.zeros(())).backward()
    optimizer.step()
    states = {"g": one.state_dict(), "d": other.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(states, tmp_path / "x.pt")
    assert _found(tmp_path / "x.pt") == []


# --- O751 ------------------------------------------------------------------------------------------------------------


def _saved(net: nn.Module, optimizer: torch.optim.Optimizer, path: Path, without: str = "-") -> Path:
    state = {key: each for key, each in net.state_dict().items() if not key.startswith(without)}
    torch.save({"model": state, "optimizer": _stepped(net, optimizer).state_dict()}, path)
    return path


def test_the_sentence_about_groups_is_torchs(tmp_path: Path) -> None:
    """What O751 quotes is what torch says to a group of another size."""
    example = next(each for each in sick("O751") if each.like is None)
    saved = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1).state_dict()
    with pytest.raises(ValueError, match="group") as caught:
        torch.optim.SGD(nn.Linear(2, 2, bias=False).parameters(), lr=0.1).load_state_dict(saved)
    assert find_one(example, tmp_path, "O751").torch_says == (str(caught.value),)


def test_states_without_weights_are_counted(tmp_path: Path) -> None:
    """A file that lost layers has an optimizer for more parameters than it has tensors."""
    net = Net()
    path = _saved(net, torch.optim.AdamW(net.parameters()), tmp_path / "x.pt", without="blocks.")
    [found] = _found(path)
    assert (found.code, found.severity) == ("O751", Severity.WARNING)
    room = sum(not key.startswith("blocks.") for key, each in net.state_dict().items() if each.dtype is torch.float32)
    room -= 3  # a tied tensor, and two running statistics
    number = len(list(net.parameters()))
    assert found.message == (
        f"optimizer has the states of {number} parameters, but only {room} tensors in the file can be parameters"
    )


def test_optimizers_and_generators_make_no_room() -> None:
    """Only tensors outside the states of optimizers, schedulers and generators can be parameters, wherever they lie."""
    states = {number: {"exp_avg": T((2, 4))} for number in range(4)}
    optimizer = {"state": states, "param_groups": [{"params": list(states)}]}
    contents = {"model": {"fc.weight": T((2, 4))}, "loss": {"w": T((2,))}, "optimizer": optimizer, "list": [T((2,))]}
    [found] = findings("O751", {**contents, "rng": T((5056,), "uint8")})
    assert found.message.endswith("the states of 4 parameters, but only 3 tensors in the file can be parameters")


@pytest.mark.parametrize("named", [False, True])
def test_a_smaller_model_is_told(named: bool, tmp_path: Path) -> None:
    """Held against a model without some layers: too many states, by number or by name."""
    net = Net()
    given: Any = net.named_parameters() if named else net.parameters()
    path = _saved(net, torch.optim.AdamW(given), tmp_path / "x.pt")
    torch.save({key: each for key, each in net.state_dict().items() if "blocks" not in key}, tmp_path / "like.pt")
    [found] = _found(path, tmp_path / "like.pt")
    assert (found.code, found.severity) == ("O751", Severity.WARNING)
    assert ("such as blocks.0.weight" in found.message) is named


def test_a_larger_model_is_worth_knowing(tmp_path: Path) -> None:
    """Held against a model with one more layer, an optimizer over everything here is too small for everything there."""
    net, larger = (nn.Sequential(nn.Conv2d(3, 2, 1), nn.Conv2d(2, 4, 1)), nn.Sequential())
    path = _saved(net, torch.optim.AdamW(net.parameters()), tmp_path / "x.pt")
    larger = nn.Sequential(*net, nn.Conv2d(4, 4, 1))
    torch.save(larger.state_dict(), tmp_path / "like.pt")
    [found] = _found(path, tmp_path / "like.pt")
    assert (found.code, found.severity) == ("O751", Severity.INFO)


# --- O752 ------------------------------------------------------------------------------------------------------------


class Small(nn.Module):
    """Three layers whose shapes tell them apart."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 7, 1)
        self.norm = nn.BatchNorm2d(7)
        self.fc = nn.Conv2d(7, 5, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.fc(self.norm(self.conv(images)))
        return result


def _last_first(net: nn.Module) -> list[nn.Parameter]:
    *rest, last = net.parameters()
    return [last, *rest]


@pytest.mark.parametrize("net", [Small(), Net()], ids=["small", "net"])
@pytest.mark.parametrize("name", ["AdamW", "momentum", "Rprop"])
def test_another_order_is_found(name: str, net: nn.Module, tmp_path: Path) -> None:
    """The last parameter given first: shapes tell, whatever the optimizer keeps."""
    make, options = OPTIMIZERS[name]
    [found] = _found(_saved(net, make(_last_first(net), lr=0.001, **options), tmp_path / "x.pt"))
    assert (found.code, found.severity) == ("O752", Severity.WARNING)
    assert found.message == "the states of optimizer are not in the order of the parameters of model"


TURNS: dict[str, Callable[[nn.Module], list[nn.Parameter]]] = {
    "backwards": lambda net: list(net.parameters())[::-1],
    "the last first": _last_first,
    "two by two": lambda net: list(net.parameters())[2:] + list(net.parameters())[:2],
}


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("foreach", [True, False])
def test_the_first_step_says_what_is_quoted(turn: str, foreach: bool, tmp_path: Path) -> None:
    """Loading passes, and then the step fails with the quoted line."""
    net = Small()
    optimizer = torch.optim.AdamW(TURNS[turn](net), foreach=foreach)
    [found] = _found(_saved(net, optimizer, tmp_path / "x.pt"))
    fresh = torch.optim.AdamW(net.parameters(), foreach=foreach)
    fresh.load_state_dict(torch.load(tmp_path / "x.pt")["optimizer"])
    with pytest.raises(RuntimeError) as caught:
        fresh.step()
    assert found.torch_says == (str(caught.value),)


def test_unique_shapes_tell_the_order(tmp_path: Path) -> None:
    """Where every shape is there once, the advice names the order that the optimizer has."""
    net = nn.Sequential(nn.Conv2d(3, 7, 1), nn.Conv2d(7, 5, 1, bias=False))
    [found] = _found(_saved(net, torch.optim.AdamW(_last_first(net)), tmp_path / "x.pt"))
    assert found.advice.startswith("Its order is 1.weight, 0.weight, 0.bias. ")


def test_names_tell_what_shapes_cannot(tmp_path: Path) -> None:
    """Layers of one shape in another order: only an optimizer with names gives it away."""
    net = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1))
    turned = list(net.named_parameters())[2:] + list(net.named_parameters())[:2]
    path = _saved(net, torch.optim.AdamW(turned), tmp_path / "names.pt")
    assert [each.code for each in _found(path)] == ["O752"]
    path = _saved(net, torch.optim.AdamW([each for _, each in turned]), tmp_path / "numbers.pt")
    assert _found(path) == []


def test_states_that_came_to_others_are_an_error(tmp_path: Path) -> None:
    """Loaded into an optimizer with names in another order, states contradict the names they got."""
    net = Small()
    old = _stepped(net, torch.optim.AdamW(_last_first(net))).state_dict()
    new = torch.optim.AdamW(net.named_parameters())
    new.load_state_dict(old)
    torch.save({"model": net.state_dict(), "optimizer": new.state_dict()}, tmp_path / "x.pt")
    [found] = _found(tmp_path / "x.pt")
    assert (found.code, found.severity) == ("O752", Severity.ERROR)
    assert found.message == "the states of optimizer do not belong to the parameters that it names"


class Turned(Small):
    """The same layers, the last one registered first."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.fc = nn.Conv2d(7, 5, 1)
        self.conv = nn.Conv2d(3, 7, 1)
        self.norm = nn.BatchNorm2d(7)


def test_a_model_that_was_rearranged_is_told(tmp_path: Path) -> None:
    """The weights fit by name, and the optimizer's numbers go to others."""
    net = Small()
    path = _saved(net, torch.optim.AdamW(net.parameters()), tmp_path / "x.pt")
    torch.save(Turned().state_dict(), tmp_path / "like.pt")
    [found] = _found(path, tmp_path / "like.pt")
    assert found.code == "O752"
    assert found.message.startswith("the parameters of ")


@pytest.mark.parametrize("half", [False, True])
def test_the_order_of_a_safetensors_file_is_not_believed(half: bool, tmp_path: Path) -> None:
    """safetensors sorts keys, by dtype and then by name: that says nothing about the model."""
    net = Small()
    path = _saved(net, torch.optim.AdamW(net.parameters()), tmp_path / "x.pt")
    like = {key: each.half() if half and "conv" in key else each for key, each in net.state_dict().items()}
    save_file(like, tmp_path / "like.safetensors")
    assert _found(path, tmp_path / "like.safetensors") == []
