"""The list of all tensors, in the order of any column."""

from __future__ import annotations

import pytest

from ckptdoctor.filters.table import Table
from ckptdoctor.tui.models.lines import SortColumn, next_column, ordered
from ckptdoctor.values.statistics import TensorValues
from tests.rendering.samples import tensor

TABLE = Table(
    (
        tensor("m", "b", shape=(4, 4), device="cuda:1"),
        tensor("m", "c", shape=(9,), dtype="float64", device="cpu"),
        tensor("m", "a", shape=(2, 8), dtype="bfloat16", device="cuda:0"),
    )
)


@pytest.mark.parametrize(
    ("column", "rows"),
    [
        (SortColumn.PLACE, [0, 1, 2]),
        (SortColumn.NAME, [2, 0, 1]),
        (SortColumn.SHAPE, [1, 0, 2]),
        (SortColumn.DTYPE, [2, 0, 1]),
        (SortColumn.ELEMENTS, [0, 2, 1]),
        (SortColumn.BYTES, [1, 0, 2]),
        (SortColumn.DEVICE, [1, 2, 0]),
    ],
)
def test_order(column, rows):
    """Names rise, sizes fall, and equal ones stay as they are in the file."""
    assert list(ordered(TABLE, range(3), column)) == rows


def test_names_are_in_natural_order():
    """Layer 2 comes before layer 10."""
    names = [f"h.{layer}.{leaf}" for layer in (10, 2) for leaf in "wb"]
    table = Table([tensor(name) for name in names])
    assert [names[row] for row in ordered(table, range(4), SortColumn.NAME)] == ["h.2.b", "h.2.w", "h.10.b", "h.10.w"]


def test_backwards():
    """The other way round."""
    assert list(ordered(TABLE, range(3), SortColumn.NAME, True)) == [1, 0, 2]
    assert list(ordered(TABLE, range(3), SortColumn.PLACE, True)) == [2, 1, 0]


def test_all_columns_in_turn():
    """The key that sorts comes to every column and back."""
    column = SortColumn.PLACE
    seen = [column := next_column(column, measured=True) for _ in SortColumn]
    assert set(seen) == set(SortColumn) and column is SortColumn.PLACE


def test_values_are_sorted_once_they_are_known():
    """Largest first; what was not read comes last."""
    values = {0: TensorValues(4, std=0.5, nan=1), 2: TensorValues(4, std=2.0)}
    assert list(ordered(TABLE, range(3), SortColumn.STD, values_of=values.get)) == [2, 0, 1]
    assert list(ordered(TABLE, range(3), SortColumn.NAN, values_of=values.get)) == [0, 2, 1]
    assert next_column(SortColumn.DEVICE) is SortColumn.PLACE
    assert next_column(SortColumn.DEVICE, measured=True) is SortColumn.STD
