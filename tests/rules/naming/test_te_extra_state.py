"""N421 te-extra-state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ckptdoctor.edits import Drop, Safety
from ckptdoctor.errors import RefusedError
from ckptdoctor.examine.file import check
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.examples import T
from ckptdoctor.target.mapping import as_reference
from tests.rules import nouns


class Fp8Linear(torch.nn.Linear):
    """A linear layer with extra state as Transformer Engine's has it: bytes of a pickle in a tensor."""

    def get_extra_state(self) -> torch.Tensor:
        """Scaling factors."""
        return torch.zeros(16, dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Takes them back."""


def _net(layer: type[torch.nn.Linear]) -> torch.nn.Module:
    return torch.nn.Sequential(layer(3, 4), torch.nn.ReLU(), layer(4, 2))


def test_extra_state_that_plain_layers_do_not_know_goes() -> None:
    """One pattern drops it, the reference confirms it, and torch's words are quoted."""
    saved, target = _net(Fp8Linear).state_dict(), _net(torch.nn.Linear)
    [found] = nouns.findings("N421", nouns.described(saved), nouns.described(target.state_dict()))
    assert found.torch_says[0] in nouns.torch_error(target, saved)
    assert found.message == "2 of 6 keys are extra state of modules, which like.pt does not load"
    assert found.fix is not None
    assert (found.fix.safety, found.fix.option) == (Safety.CONFIRMED, "--drop '*._extra_state'")
    assert found.fix.edits == (Drop((("0._extra_state",), ("2._extra_state",))),)
    assert nouns.findings("R002", nouns.described(saved), nouns.described(target.state_dict())) == []


def test_extra_state_that_is_missing_cannot_be_made_up() -> None:
    """``strict=False`` leaves it as the target made it."""
    saved, target = _net(torch.nn.Linear).state_dict(), _net(Fp8Linear)
    [found] = nouns.findings("N421", nouns.described(saved), nouns.described(target.state_dict()))
    assert found.torch_says[0] in nouns.torch_error(target, saved)
    assert found.fix is None
    assert nouns.findings("R001", nouns.described(saved), nouns.described(target.state_dict())) == []


def test_longer_names_are_other_names() -> None:
    """The last token must be exactly that name."""
    body = {"a.weight": T((2, 2)), "b.weight": T((2, 2))}
    assert nouns.findings("N421", {**body, "a.my_extra_state": T((4,), "uint8")}, body) == []


class Extra(torch.nn.Module):
    """A layer that keeps something beside its tensors."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.fc, self.value = torch.nn.Linear(3, 3), value

    def get_extra_state(self) -> object:
        return self.value

    def set_extra_state(self, state: object) -> None:
        self.value = state


class Written(Extra):
    """One that writes extra state and does not read it."""

    set_extra_state = torch.nn.Module.set_extra_state


class Plain(torch.nn.Module):
    """The same layer without."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)


def _model(layer: torch.nn.Module) -> torch.nn.Module:
    return torch.nn.ModuleDict({"a": layer, "out": torch.nn.Linear(3, 2)})


LAYERS: dict[str, Callable[[], torch.nn.Module]] = {
    "a dict": lambda: Extra({"amax": 3}),
    "bytes": lambda: Extra(b"fp8"),
    "None": lambda: Extra(None),
    "a tensor": lambda: Extra(torch.ones(3)),
    "another tensor": lambda: Extra(torch.ones(0, dtype=torch.uint8)),
    "none": Plain,
    "written only": lambda: Written(None),
}


@pytest.mark.parametrize("target", LAYERS)
@pytest.mark.parametrize("saved", LAYERS)
@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "wrapped"])
def test_it_is_judged_as_torch_judges_it(saved: str, target: str, wrapped: bool, tmp_path: Path) -> None:
    """Whatever it is, a module with ``set_extra_state`` wants it, and no other one does; ``--auto`` drops it there."""
    net, model = _model(LAYERS[saved]()), _model(LAYERS[target]())
    weights = net.state_dict()
    path = str(tmp_path / "model.pt")
    torch.save({f"module.{key}": value for key, value in weights.items()} if wrapped else weights, path)
    try:
        model.load_state_dict(weights)
        said = ""
    except RuntimeError as error:
        said = str(error)
    report = check(path, reference=as_reference(model))
    found = [each for each in report.findings if each.code != "N401"]
    assert [each.code for each in found] == (["N421"] if said else [])
    assert all(each.torch_says[0] in said for each in found)
    request = FixRequest(path, str(tmp_path / "well.pt"), auto=True, reference=as_reference(model))
    if "Missing" in said:
        with pytest.raises(RefusedError, match=r"missing: a\._extra_state"):
            plan(request)
        return
    planned = plan(request)
    repair(planned)
    model.load_state_dict(torch.load(planned.output if planned.recipe is not None else path), strict=True)
