"""The columns of all tensors."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.filters.table import Figures, Table
from tests.rendering.samples import tensor

KINDS = st.tuples(st.sampled_from(["float32", "float16", "bool"]), st.sampled_from(["cpu", "cuda:0"]))
SHAPES = st.sampled_from([(), (3,), (2, 3), (0, 4)])


def made(number, shape, kind, has_parts=False):
    """A tensor on a storage of its own."""
    dtype, device = kind
    each = replace(tensor(f"t{number}", shape=shape, device=device), dtype=BY_NAME[dtype])
    return replace(each, parts=(tensor("inside", shape=(5,), device="cpu"),)) if has_parts else each


@given(st.lists(st.tuples(SHAPES, KINDS, st.booleans()), max_size=12))
def test_columns_are_what_the_tensors_say(wanted):
    """Whatever shapes, dtypes and devices follow each other, a row says what its tensor does, and sums add up."""
    tensors = [made(number, *each) for number, each in enumerate(wanted)]
    table = Table(tensors)
    assert table.elements == [each.numel for each in tensors]
    assert table.nbytes == [each.nbytes for each in tensors]
    assert [table.kind_names[kind] for kind in table.kinds] == [(each.dtype.name, each.device) for each in tensors]
    assert [table.name(row) for row in range(len(table))] == table.names
    rows = range(len(tensors) // 3, len(tensors))
    assert table.figures(rows) == Figures(len(rows), sum(table.elements[rows.start :]), sum(table.nbytes[rows.start :]))
    assert set(table.kinds_of(rows)) == {(tensors[row].dtype.name, tensors[row].device) for row in rows}


def test_the_first_of_two_rows_with_one_path_is_found():
    """A damaged file may have a key twice, however far apart."""
    tensors = [tensor(f"t{number % 5_000}", device="cpu") for number in range(10_000)]
    assert Table(tensors).row_of == {(f"t{number}",): number for number in range(5_000)}
