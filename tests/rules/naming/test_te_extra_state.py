"""N421 te-extra-state."""

from __future__ import annotations

import torch

from ckptdoctor.edits import Drop, Safety
from ckptdoctor.rules.examples import T
from ckptdoctor.rules.naming.te_extra_state import te_extra_state
from ckptdoctor.rules.reference.missing_keys import missing_keys
from ckptdoctor.rules.reference.unexpected_keys import unexpected_keys
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
    [found] = nouns.findings(te_extra_state, nouns.described(saved), nouns.described(target.state_dict()))
    assert found.torch_says[0] in nouns.torch_error(target, saved)
    assert found.message == "2 of 6 keys are extra state of modules, which like.pt does not load"
    assert found.fix is not None
    assert (found.fix.safety, found.fix.option) == (Safety.CONFIRMED, "--drop '*._extra_state'")
    assert found.fix.edits == (Drop((("0._extra_state",), ("2._extra_state",))),)
    assert nouns.findings(unexpected_keys, nouns.described(saved), nouns.described(target.state_dict())) == []


def test_extra_state_that_is_missing_cannot_be_made_up() -> None:
    """``strict=False`` leaves it as the target made it."""
    saved, target = _net(torch.nn.Linear).state_dict(), _net(Fp8Linear)
    [found] = nouns.findings(te_extra_state, nouns.described(saved), nouns.described(target.state_dict()))
    assert found.torch_says[0] in nouns.torch_error(target, saved)
    assert found.fix is None
    assert nouns.findings(missing_keys, nouns.described(saved), nouns.described(target.state_dict())) == []


def test_longer_names_are_other_names() -> None:
    """The last token must be exactly that name."""
    body = {"a.weight": T((2, 2)), "b.weight": T((2, 2))}
    assert nouns.findings(te_extra_state, {**body, "a.my_extra_state": T((4,), "uint8")}, body) == []
