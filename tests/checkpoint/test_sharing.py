"""Shared bytes and bytes that nobody looks at."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint import Checkpoint, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.sharing import leaves, paths_on, shared, storage_use

F32 = BY_NAME["float32"]


def storage(key="0", nbytes=400):
    return Storage(key, nbytes, F32, "cpu", None)


def tensor(name, on, offset=0, shape=(10,), stride=(1,), dtype=F32, parts=()):
    return Tensor((name,), dtype, shape, stride, on, offset, parts=parts)


def test_one_view_twice_is_a_tie():
    """Two tensors with the same storage, offset, shape and stride are one."""
    a = storage()
    (group,) = shared([tensor("x", a), tensor("y", a), tensor("z", storage("1"))])
    assert group.tied
    assert [each.key for each in group.tensors] == ["x", "y"]


def test_overlapping_views_share_but_are_no_tie():
    """Views that meet share memory; neighbours do not."""
    a = storage()
    tensors = [tensor("x", a), tensor("y", a, offset=5), tensor("z", a, offset=15)]
    (group,) = shared(tensors)
    assert not group.tied
    assert [each.key for each in group.tensors] == ["x", "y"]


def test_a_chain_of_overlaps_is_one_group():
    """x meets y and y meets z: one group, in the order of the file."""
    a = storage()
    (group,) = shared([tensor("z", a, offset=10), tensor("x", a), tensor("y", a, offset=5, shape=(8,))])
    assert [each.key for each in group.tensors] == ["z", "x", "y"]


def test_empty_tensors_share_nothing():
    """A tensor without elements is in no group and views no byte."""
    a = storage()
    tensors = [tensor("x", a, shape=(0,)), tensor("y", a, shape=(0,))]
    assert shared(tensors) == []
    assert [use.viewed for use in storage_use(tensors)] == [0]


def test_views_are_counted_once():
    """The union of overlapping views, up to the storage's length."""
    a = storage(nbytes=400)
    (use,) = storage_use([tensor("x", a), tensor("y", a, offset=5), tensor("z", a, offset=90)])
    assert (use.viewed, use.wasted) == (60 + 40, 300)


def test_a_strided_view_counts_from_first_to_last_element():
    """Gaps inside of one view are not waste."""
    (use,) = storage_use([tensor("x", storage(nbytes=400), shape=(5,), stride=(20,))])
    assert use.viewed == (4 * 20 + 1) * 4


def test_parts_are_leaves():
    """A tensor made of parts is counted by its parts."""
    part = tensor("inner", storage())
    assert list(leaves([tensor("outer", None, parts=(part,))])) == [part]


def test_paths_on_storages():
    """The tensors of damaged storages are found by the storage's key."""
    a, b = storage("0"), storage("1")
    tensors = (tensor("x", a), tensor("y", b), tensor("z", a, offset=5))
    checkpoint = Checkpoint("f", "torch zip", 0, None, tensors, (a, b), ())
    assert paths_on(checkpoint, [a]) == (("x",), ("z",))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 10)), max_size=8))
def test_viewed_bytes_are_the_union(views):
    """Against a set of elements: nothing counted twice, nothing left out."""
    a = storage()
    tensors = [tensor(str(index), a, offset=offset, shape=(size,)) for index, (offset, size) in enumerate(views)]
    expected = {element for offset, size in views for element in range(offset, offset + size)}
    assert sum(use.viewed for use in storage_use(tensors)) == 4 * len(expected)
