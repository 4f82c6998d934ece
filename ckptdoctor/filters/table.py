"""Holds all tensors of a checkpoint in columns: trees, lists and filters ask about 500,000 of them at once.

A tensor is a row: its place in ``Checkpoint.tensors``. Sets of rows are a ``range`` where they are neighbours in the
file, as the tensors of a module nearly always are, so that sums over them are two look-ups.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from math import prod
from typing import Any, TypeVar, Union

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Tensor, show_path
from ckptdoctor.noun import noun

Rows = Union[range, list[int]]
K = TypeVar("K")
V = TypeVar("V")

_BLOCK = 4_096  # rows that are dealt with in one step, so that the screen has its turn between two


@noun
class Figures:
    """The totals of a set of tensors; tensors that are the same view of the same storage count once."""

    tensors: int
    elements: int
    nbytes: int


class Table:
    """The tensors of a checkpoint, column by column."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = tensors
        self.elements: list[int] = []
        self.nbytes: list[int] = []
        # dtype and device tag together: a file has few such kinds, however many tensors
        self.kinds: list[int] = []
        self.kind_names: list[tuple[str, str]] = []
        self._steps: dict[int, list[Any]] = {0: []}
        self.twins = _twins(tensors, self._fill())
        self._elements_before = [0, *accumulate(self.elements)]
        self._nbytes_before = [0, *accumulate(self.nbytes)]
        self._repeated = sorted([row for rows in self.twins for row in rows[1:]])
        self._first_twin = {row: rows[0] for rows in self.twins for row in rows}

    def _fill(self) -> list[str | None]:
        """Fill the columns, and give the storage of each tensor.

        All in one pass: most of the time is spent waiting for the memory in which a tensor is.
        """
        elements, nbytes, kinds, steps = self.elements, self.nbytes, self.kinds, self._steps[0]
        numbers: dict[tuple[str, str], int] = {}
        counted: _Once[tuple[int, ...], int] = _Once(prod)
        sizes: _Once[int, _Once[int, int]] = _Once(lambda bits: _Once(lambda number: (number * bits + 7) >> 3))
        storages: list[str | None] = []
        dtype = device = None
        for each in self.tensors:
            if each.dtype is not dtype or each.device is not device:
                dtype, device = each.dtype, each.device
                kind, sized = numbers.setdefault((dtype.name, device), len(numbers)), sizes[dtype.bits]
            number, path, storage = counted[each.shape], each.path, each.storage
            elements.append(number)
            nbytes.append(each.nbytes if each.parts else sized[number])
            kinds.append(kind)
            steps.append(path[0] if path else None)
            storages.append(None if storage is None else storage.key)
        self.kind_names.extend(numbers)
        return storages

    def __len__(self) -> int:
        return len(self.tensors)

    @cached_property
    def names(self) -> list[str]:
        """Every key path as text, not yet escaped for a terminal."""
        return [_name(each.path) for each in self.tensors]

    def name(self, row: int) -> str:
        """Return the key path of one of them as text, without waiting for those of all."""
        return _name(self.tensors[row].path)

    @cached_property
    def folded(self) -> list[str]:
        """The names without upper case, for searching."""
        return [name.lower() for name in self.names]

    @cached_property
    def row_of(self) -> Mapping[KeyPath, int]:
        """The row of each key path; of the first, where a damaged file has two."""
        return _RowOf(self.tensors)

    def steps(self, at: int) -> list[Any]:
        """Return the step that every key path takes at this depth, or None where it is not so long."""
        if at not in self._steps:
            self._steps[at] = [path[at] if len(path := each.path) > at else None for each in self.tensors]
        return self._steps[at]

    def prepare(self) -> None:
        """Make what a list, a filter or a jump will ask for: work for a thread."""
        _ = self.names, self.folded, self.row_of

    def tied_to(self, row: int) -> tuple[int, ...]:
        """Return the other tensors that are the same view of the same storage."""
        if row not in self._first_twin:
            return ()
        return tuple([twin for twin in self._twins_by_first[self._first_twin[row]] if twin != row])

    @cached_property
    def _twins_by_first(self) -> dict[int, tuple[int, ...]]:
        return {rows[0]: rows for rows in self.twins}

    def figures(self, rows: Rows) -> Figures:
        """Return the number of tensors, elements and bytes of these rows."""
        elements = _total(self.elements, self._elements_before, rows)
        nbytes = _total(self.nbytes, self._nbytes_before, rows)
        for row in self._counted_twice(rows):
            elements -= self.elements[row]
            nbytes -= self.nbytes[row]
        return Figures(len(rows), elements, nbytes)

    def _counted_twice(self, rows: Rows) -> list[int]:
        """Return the rows whose twin is among the rows as well."""
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
        """Return the different (dtype, device tag) of these rows."""
        kinds = set(_taken(self.kinds, rows)) if len(self.kind_names) > 1 else range(bool(rows))
        return [self.kind_names[kind] for kind in sorted(kinds)]


def as_rows(rows: list[int]) -> Rows:
    """Return rows in ascending order as a range, where none is missing between them."""
    return range(rows[0], rows[-1] + 1) if rows and rows[-1] - rows[0] + 1 == len(rows) else rows


def of(checkpoint: Checkpoint) -> Table:
    """Return the tensors of a checkpoint as a table."""
    return Table(checkpoint.tensors)


class _RowOf(Mapping[KeyPath, int]):
    """The row of each key path, in many small dicts.

    A dict of half a million that grows is copied in one go, for which the screen would have to wait.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._parts: list[dict[KeyPath, int]] = [{} for _ in range(max(1, len(tensors) // _BLOCK))]
        parts, number = self._parts, len(self._parts)
        for row, each in enumerate(tensors):
            path = each.path
            parts[hash(path) % number].setdefault(path, row)

    def __getitem__(self, path: KeyPath) -> int:
        return self._parts[hash(path) % len(self._parts)][path]

    def __contains__(self, path: object) -> bool:
        return path in self._parts[hash(path) % len(self._parts)]

    def __iter__(self) -> Iterator[KeyPath]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))


class _Once(dict[K, V]):
    """The results of a function, worked out once for each different argument."""

    def __init__(self, work: Callable[[K], V]) -> None:
        super().__init__()
        self._work = work

    def __missing__(self, key: K) -> V:
        value = self[key] = self._work(key)
        return value


def _taken(column: Sequence[V], rows: Rows) -> Sequence[V]:
    return column[rows.start : rows.stop] if isinstance(rows, range) else [column[row] for row in rows]


def _total(column: Sequence[int], before: Sequence[int], rows: Rows) -> int:
    """Return the sum of a column over rows; ``before`` has that of all rows before each."""
    if isinstance(rows, range):
        return before[rows.stop] - before[rows.start] if rows else 0
    return sum([column[row] for row in rows])


def _name(path: KeyPath) -> str:
    return path[0] if len(path) == 1 and isinstance(path[0], str) else show_path(path)


def _twins(tensors: Sequence[Tensor], keys: Sequence[str | None]) -> list[tuple[int, ...]]:
    """Return rows of tensors that are the same view of the same storage (``keys``), in groups of two or more."""
    different: set[str | None] = set()
    for start in range(0, len(keys), _BLOCK):  # all at once would keep the screen waiting
        different.update(keys[start : start + _BLOCK])
    if len(different) == len(keys):
        return []
    return [tuple(rows) for rows in _grouped(tensors, _on_one_storage(keys)).values() if len(rows) > 1]


def _on_one_storage(keys: Iterable[str | None]) -> list[int]:
    """Return the rows whose storage others have as well."""
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
            groups.setdefault(each.view_id, []).append(row)
    return groups
