"""All tensors of a checkpoint in columns: what trees, lists and filters ask of 500,000 tensors at once.

A tensor is a row: its place in ``Checkpoint.tensors``. Sets of rows are a ``range`` where they are neighbours in the
file, as the tensors of a module nearly always are, so that sums over them are two look-ups.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any, Union

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Tensor, show_path

Rows = Union[range, list[int]]


@dataclass(frozen=True, slots=True)
class Figures:
    """What a set of tensors comes to; tensors that are the same view of the same storage count once."""

    tensors: int
    elements: int
    nbytes: int


class Table:
    """The tensors of a checkpoint, column by column."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = tensors
        self.elements = [prod(each.shape) for each in tensors]
        self.nbytes = [
            each.nbytes if each.parts else (count * each.dtype.bits + 7) >> 3
            for each, count in zip(tensors, self.elements, strict=True)
        ]
        # dtype and device tag together: a file has few such kinds, however many tensors
        numbers: dict[tuple[str, str], int] = {}
        self.kinds = [numbers.setdefault((each.dtype.name, each.device), len(numbers)) for each in tensors]
        self.kind_names = list(numbers)
        self._elements_before = [0, *accumulate(self.elements)]
        self._nbytes_before = [0, *accumulate(self.nbytes)]
        self._steps: dict[int, list[Any]] = {}
        self.twins = _twins(tensors)
        self._repeated = sorted([row for rows in self.twins for row in rows[1:]])
        self._first_twin = {row: rows[0] for rows in self.twins for row in rows}

    def __len__(self) -> int:
        return len(self.tensors)

    @cached_property
    def names(self) -> list[str]:
        """Every key path as text, not yet escaped for a terminal."""
        return [
            path[0] if len(path := each.path) == 1 and isinstance(path[0], str) else show_path(path)
            for each in self.tensors
        ]

    @cached_property
    def folded(self) -> list[str]:
        """The names without upper case, for searching."""
        return [name.lower() for name in self.names]

    @cached_property
    def row_of(self) -> dict[KeyPath, int]:
        """The row of each key path; of the first, where a damaged file has two."""
        tensors = self.tensors
        return {tensors[row].path: row for row in range(len(tensors) - 1, -1, -1)}

    def steps(self, at: int) -> list[Any]:
        """The step that every key path takes at this depth; None where it is not so long."""
        if at not in self._steps:
            self._steps[at] = [path[at] if len(path := each.path) > at else None for each in self.tensors]
        return self._steps[at]

    def prepare(self) -> None:
        """Make what a list, a filter or a jump will ask for: work for a thread."""
        _ = self.names, self.folded, self.row_of

    def tied_to(self, row: int) -> tuple[int, ...]:
        """The other tensors that are the same view of the same storage."""
        if row not in self._first_twin:
            return ()
        return tuple([twin for twin in self._twins_by_first[self._first_twin[row]] if twin != row])

    @cached_property
    def _twins_by_first(self) -> dict[int, tuple[int, ...]]:
        return {rows[0]: rows for rows in self.twins}

    def figures(self, rows: Rows) -> Figures:
        """How many tensors, elements and bytes these rows are."""
        if isinstance(rows, range):
            elements = self._elements_before[rows.stop] - self._elements_before[rows.start]
            nbytes = self._nbytes_before[rows.stop] - self._nbytes_before[rows.start]
        else:
            elements = sum([self.elements[row] for row in rows])
            nbytes = sum([self.nbytes[row] for row in rows])
        for row in self._counted_twice(rows):
            elements -= self.elements[row]
            nbytes -= self.nbytes[row]
        return Figures(len(rows), elements, nbytes)

    def _counted_twice(self, rows: Rows) -> list[int]:
        """The rows whose twin is among the rows as well."""
        if not self._repeated or not rows:
            return []
        begin = bisect_left(self._repeated, rows[0])
        end = bisect_left(self._repeated, rows[-1] + 1)
        inside = rows if isinstance(rows, range) or begin == end else set(rows)
        seen: set[int] = set()
        again = []
        for row in self._repeated[begin:end]:
            if row in inside:
                first = self._first_twin[row]
                if first in seen or first in inside:
                    again.append(row)
                seen.add(first)
        return again

    def kinds_of(self, rows: Rows) -> list[tuple[str, str]]:
        """The different (dtype, device tag) of these rows."""
        kinds = (
            set(self.kinds[rows.start : rows.stop]) if isinstance(rows, range) else {self.kinds[row] for row in rows}
        )
        return [self.kind_names[kind] for kind in sorted(kinds)]


def as_rows(rows: list[int]) -> Rows:
    """Rows in ascending order as a range, where none is missing between them."""
    return range(rows[0], rows[-1] + 1) if rows and rows[-1] - rows[0] + 1 == len(rows) else rows


def of(checkpoint: Checkpoint) -> Table:
    """The tensors of a checkpoint as a table."""
    return Table(checkpoint.tensors)


def _twins(tensors: Sequence[Tensor]) -> list[tuple[int, ...]]:
    """Rows of tensors that are the same view of the same storage, in groups of two or more."""
    keys = [None if each.storage is None else each.storage.key for each in tensors]
    if len(set(keys)) == len(keys):
        return []
    return [tuple(rows) for rows in _grouped(tensors, _on_one_storage(keys)).values() if len(rows) > 1]


def _on_one_storage(keys: Iterable[str | None]) -> list[int]:
    """The rows whose storage others have as well."""
    first: dict[str, int] = {}
    several: dict[int, None] = {}
    for row, key in enumerate(keys):
        if key is not None:
            before = first.setdefault(key, row)
            if before != row:
                several[before] = None
                several[row] = None
    return sorted(several)


def _grouped(tensors: Sequence[Tensor], rows: Iterable[int]) -> dict[object, list[int]]:
    groups: dict[object, list[int]] = {}
    for row in rows:
        each = tensors[row]
        if each.storage is not None and 0 not in each.shape:
            view = (each.storage.key, each.offset, each.shape, each.stride, each.dtype.name)
            groups.setdefault(view, []).append(row)
    return groups
