"""What does not belong in a state dict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ckptdoctor.checkpoint import Special
from ckptdoctor.rules.examples import T
from tests.rules import nouns
from tests.rules.examined import found

NET = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}


def _others(contents: object) -> list[str]:
    return [str(path[-1]) for each in nouns.findings("W307", contents) for path in each.keys]


def test_values_among_weights_are_found() -> None:
    """A number in a state dict is found; numbers around it, and dicts of mostly numbers, are left alone."""
    assert _others({"model": {**NET, "epoch": 3}}) == ["epoch"]
    assert _others({"model": NET, "epoch": 3}) == []
    assert _others({"table.weight": T((2,)), "size": 3, "name": "x"}) == []


def test_extra_states_are_known_by_their_key() -> None:
    """The suffix that torch gives to extra states tells them from other values."""
    suffix = torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX
    for key, is_extra_state in ((f"fc.{suffix}", True), (suffix, True), ("fc.extra", False)):
        [found] = nouns.findings("W307", {**NET, key: None})
        assert ("passes extra state to the module" in found.cause) is is_extra_state


@pytest.mark.parametrize(
    ("make", "places"),
    [
        (lambda array: {"model": {"a.weight": array, "a.bias": array}}, [("model",)]),
        (lambda array: {"a.weight": array}, [()]),
        (lambda array: {"a.weight": torch.ones(2), "a.scale": array}, [()]),
        (lambda array: {"losses": array, "model": {"a.weight": torch.ones(2)}}, []),
        (lambda array: {"losses": array}, []),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_found_where_weights_should_be(make, places, order, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Arrays as NumPy pickles them, in a state dict or instead of one."""
    torch.save(make(np.ones((2, 3), dtype=np.float32, order=order)), tmp_path / "x.pt")
    assert [each.location.path for each in found(tmp_path / "x.pt", "W306")] == places


def test_numbers_are_keys_in_other_dicts_only() -> None:
    """Tensors under numbers are odd among names and where weights should be, and nowhere else."""
    [odd] = nouns.findings("W309", {**NET, 7: T((2,)), "x": {0: T((2,))}})
    assert (odd.location.path, odd.keys) == ((), ((7,),))
    assert odd.message.startswith("1 of 3 keys ")
    assert nouns.findings("W309", {0: T((2,)), 1: T((2,))}) == []


def test_tuples_are_found_in_real_files(tmp_path: Path) -> None:
    """A tuple as a key is shown as what it is."""
    torch.save({"a.weight": torch.ones(2), (1, 2): torch.ones(2)}, tmp_path / "x.pt")
    (odd,) = found(tmp_path / "x.pt", "W309")
    assert odd.keys == ((Special("(1, 2)"),),)
    assert odd.message.startswith("1 of 2 keys ") and odd.message.endswith(": (1, 2)")
