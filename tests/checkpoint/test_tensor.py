"""What a tensor knows of the memory that it shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckptdoctor.checkpoint import Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import byte_span, shared_view

STORAGE = Storage("7", 96, BY_NAME["float32"], "cpu", None)
VIEW = Tensor(("w",), BY_NAME["float32"], (2, 3), (4, 1), STORAGE, offset=8)


@pytest.mark.parametrize("change", [{"path": ("v",)}, {"requires_grad": True}, {"storage": replace(STORAGE, nbytes=9)}])
def test_the_same_memory_has_one_view_id(change):
    """Whatever a tensor is called, and whatever else is known of its storage."""
    other = replace(VIEW, **change)
    assert (other.view_id, other.place_id, other.form) == (VIEW.view_id, VIEW.place_id, VIEW.form)


@pytest.mark.parametrize(
    "change", [{"offset": 0}, {"shape": (3, 2)}, {"stride": (3, 1)}, {"storage": replace(STORAGE, key="8")}]
)
def test_other_memory_has_another(change):
    """Each part of a view counts."""
    other = replace(VIEW, **change)
    assert other.view_id != VIEW.view_id
    assert other.place_id != VIEW.place_id


def test_a_type_is_part_of_a_view_and_not_of_a_place():
    """Two types may see the same elements."""
    other = replace(VIEW, dtype=BY_NAME["int32"])
    assert other.place_id == VIEW.place_id
    assert other.view_id != VIEW.view_id
    assert other.form != VIEW.form


def test_no_storage_is_no_memory():
    """Tensors on meta are never one."""
    bare = replace(VIEW, storage=None)
    assert (bare.view_id, bare.place_id, shared_view(bare)) == (None, None, None)


@pytest.mark.parametrize("change", [{"shape": (0, 3)}, {"parts": (VIEW,)}])
def test_nothing_is_shared_without_elements_of_its_own(change):
    """An empty tensor has a view like any other, but shares nothing; and of one made of parts these are shared."""
    other = replace(VIEW, **change)
    assert other.view_id is not None
    assert shared_view(other) is None
    assert shared_view(VIEW) == VIEW.view_id


@pytest.mark.parametrize(
    ("change", "span"),
    [
        ({}, (32, 60)),
        ({"shape": (0, 3)}, (32, 32)),
        ({"shape": (2, 0)}, (32, 32)),
        ({"shape": (), "stride": ()}, (32, 36)),
    ],
)
def test_a_span_ends_behind_the_last_element(change, span):
    """In bytes of the storage; without elements it is empty."""
    assert byte_span(replace(VIEW, **change)) == span
