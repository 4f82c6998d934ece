"""Nouns that are made quickly."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from ckptdoctor.brief import in_full
from ckptdoctor.checkpoint import Extent, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.making import make_extent, make_storage, make_tensor

FLOAT = BY_NAME["float32"]


def test_what_is_made_quickly_is_the_same() -> None:
    """Values by place and by name, and defaults: equal, of the very class, with the same text and the same hash."""
    extent = Extent("model.pt", 64, 24)
    storage = Storage("0", 24, FLOAT, "cpu", extent, compressed=True)
    tensor = Tensor(("w",), FLOAT, (2, 3), (3, 1), storage, 2, "cuda:0", requires_grad=True, rebuild="f")
    made = make_storage("0", 24, FLOAT, "cpu", make_extent("model.pt", 64, length=24), compressed=True)
    again = make_tensor(("w",), FLOAT, (2, 3), (3, 1), made, 2, "cuda:0", requires_grad=True, rebuild="f")
    assert make_tensor(("w",), FLOAT, (), (), made) == Tensor(("w",), FLOAT, (), (), storage)
    assert (again, made) == (tensor, storage)
    assert (type(again), type(made), type(made.extent)) == (Tensor, Storage, Extent)
    assert (in_full(again), hash(made)) == (in_full(tensor), hash(storage))


def test_what_is_made_quickly_is_frozen() -> None:
    """No field can be set, and copies with other values can be made."""
    extent = make_extent("model.pt", 64, 24)
    with pytest.raises(dataclasses.FrozenInstanceError):
        extent.offset = 0
    assert dataclasses.replace(extent, offset=0) == Extent("model.pt", 0, 24)
    assert copy.deepcopy(extent) == extent
