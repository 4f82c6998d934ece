"""What does not belong in a state dict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ckptdoctor.checkpoint import Special
from ckptdoctor.formats import open_checkpoint
from ckptdoctor.rules.examples import T
from ckptdoctor.rules.structure import odd_leaves
from tests.rules import nouns

NET = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}


def _others(contents: object) -> list[str]:
    checkpoint = nouns.checkpoint(contents)
    sets = odd_leaves.sets_with_others(checkpoint)
    return [leaf.key for each in sets for leaf in odd_leaves.non_tensors(checkpoint, each)]


def test_values_among_weights_are_found() -> None:
    """A number in a state dict is found; numbers around it, and dicts of mostly numbers, are left alone."""
    assert _others({"model": {**NET, "epoch": 3}}) == ["epoch"]
    assert _others({"model": NET, "epoch": 3}) == []
    assert _others({"table.weight": T((2,)), "size": 3, "name": "x"}) == []


def test_extra_states_are_known_by_their_key() -> None:
    """The suffix that torch gives to extra states tells them from other values."""
    key = torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX
    assert odd_leaves.Leaf(f"fc.{key}", (), None).is_extra_state
    assert odd_leaves.Leaf(key, (), None).is_extra_state
    assert not odd_leaves.Leaf("fc.extra", (), None).is_extra_state


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
    found = list(odd_leaves.arrays(open_checkpoint(str(tmp_path / "x.pt"))))
    assert [path for path, _, _ in found] == places


def test_numbers_are_keys_in_other_dicts_only() -> None:
    """Tensors under numbers are odd among names and where weights should be, and nowhere else."""
    found = list(odd_leaves.untextual(nouns.checkpoint({**NET, 7: T((2,)), "x": {0: T((2,))}})))
    assert found == [((), [7], 3)]
    assert list(odd_leaves.untextual(nouns.checkpoint({0: T((2,)), 1: T((2,))}))) == []


def test_tuples_are_found_in_real_files(tmp_path: Path) -> None:
    """A tuple as a key is shown as what it is."""
    torch.save({"a.weight": torch.ones(2), (1, 2): torch.ones(2)}, tmp_path / "x.pt")
    assert list(odd_leaves.untextual(open_checkpoint(str(tmp_path / "x.pt")))) == [((), [Special("(1, 2)")], 2)]
