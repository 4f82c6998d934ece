"""All tensors as one list, in the order of any column."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from ckptdoctor.filters.table import Rows, Table


class Column(Enum):
    """What the list can be sorted by; the value is the column's heading."""

    PLACE = "file order"
    NAME = "name"
    SHAPE = "shape"
    DTYPE = "dtype"
    ELEMENTS = "elements"
    BYTES = "bytes"
    DEVICE = "device"


# sorted by these, the largest comes first
_DESCENDING = frozenset({Column.ELEMENTS, Column.BYTES, Column.SHAPE})


def ordered(table: Table, rows: Rows, column: Column, backwards: bool = False) -> Rows:
    """The rows as a column orders them (sizes: largest first), or the other way round; equal ones as in the file."""
    if column is Column.PLACE:
        if backwards:
            return list(reversed(rows))
        return rows
    falling = (column in _DESCENDING) is not backwards
    key = _key(table, column)
    if column is Column.NAME:  # of which there is one for each row
        return sorted(rows, key=key, reverse=falling)
    # by value first: few of them are different, and a loop in Python lets the screen have its turn, which sorting all
    # of them at once does not
    alike: dict[Any, list[int]] = {}
    for row in rows:
        alike.setdefault(key(row), []).append(row)
    return [row for value in sorted(alike, reverse=falling) for row in alike[value]]


def following(column: Column) -> Column:
    """The column after this one, the first after the last."""
    columns = list(Column)
    return columns[(columns.index(column) + 1) % len(columns)]


def _key(table: Table, column: Column) -> Callable[[int], Any]:
    if column is Column.NAME:
        return table.names.__getitem__
    if column is Column.ELEMENTS:
        return table.elements.__getitem__
    if column is Column.BYTES:
        return table.nbytes.__getitem__
    if column is Column.SHAPE:
        tensors = table.tensors
        return lambda row: tensors[row].shape
    kinds, names = table.kinds, table.kind_names
    part = 0 if column is Column.DTYPE else 1
    places = [sorted({name[part] for name in names}).index(name[part]) for name in names]
    return lambda row: places[kinds[row]]
