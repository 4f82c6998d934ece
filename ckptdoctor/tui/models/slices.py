"""Slices a tensor: two dimensions are looked at, at indexes of the others. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ckptdoctor.rendering.numbers import plain

ElementIndex = tuple[int, ...]

_LITTLE = 25  # elements of a slice that say little
_KERNEL = 32  # rows and columns that a kernel has at most


@dataclass(frozen=True, slots=True)
class Slice:
    """The dimension whose index grows downwards, the one to the right, and ``at`` where the others are kept.

    Without ``rows``, what there is of one dimension is written in lines of ``across``; a number alone has neither.
    """

    shape: ElementIndex
    rows: int | None
    columns: int | None
    at: ElementIndex
    across: int = 1

    @property
    def height(self) -> int:
        """The number of lines."""
        if 0 in self.shape:
            return 0
        if self.rows is not None:
            return self.shape[self.rows]
        return -(-self.count // self.across)

    @property
    def width(self) -> int:
        """The number of numbers in a line."""
        if 0 in self.shape:
            return 0
        return self.count if self.rows is not None else min(self.count, self.across)

    @property
    def count(self) -> int:
        """The size of the dimension to the right."""
        return 1 if self.columns is None else self.shape[self.columns]

    @property
    def others(self) -> list[int]:
        """The dimensions that are kept at one index, of those that could move."""
        return [dim for dim, size in enumerate(self.shape) if size > 1 and dim not in (self.rows, self.columns)]

    @property
    def slices(self) -> int:
        """The number of slices."""
        return prod([self.shape[dim] for dim in self.others])

    @property
    def number(self) -> int:
        """The number of this slice."""
        number = 0
        for dim in self.others:
            number = number * self.shape[dim] + self.at[dim]
        return number

    def index(self, row: int, column: int) -> ElementIndex | None:
        """Return the index of the element at that place; None behind the last."""
        if not (0 <= row < self.height and 0 <= column < self.width):
            return None
        found = list(self.at)
        if self.rows is not None:
            found[self.rows] = row
        elif row * self.across + column >= self.count:
            return None
        else:
            column += row * self.across
        if self.columns is not None:
            found[self.columns] = column
        return tuple(found)

    def place(self, index: ElementIndex) -> tuple[int, int]:
        """Return the row and column of an element of this slice."""
        column = 0 if self.columns is None else index[self.columns]
        if self.rows is not None:
            return index[self.rows], column
        return divmod(column, self.across)

    def box(self, rows: range, columns: range) -> list[range]:
        """Return the indexes of each dimension that these rows and columns need."""
        found = [range(each, each + 1) for each in self.at]
        if 0 in self.shape:
            return [range(0) for _ in self.shape]
        if self.rows is not None:
            found[self.rows] = rows
        else:
            columns = range(min(self.count, rows.start * self.across), min(self.count, rows.stop * self.across))
        if self.columns is not None:
            found[self.columns] = columns
        return found

    def whole(self) -> list[range]:
        """Return the indexes of each dimension that the whole slice needs."""
        return self.box(range(self.height), range(self.count if self.rows is not None else 0))

    def through(self, index: ElementIndex) -> Slice:
        """Return the slice with the same dimensions that contains an element."""
        return replace(self, at=self._still(index))

    def step(self, by: int) -> Slice:
        """Return the slice so many further on, the last dimension first; after the last comes the first."""
        number = (self.number + by) % max(1, self.slices)
        at = list(self.at)
        for dim in reversed(self.others):
            number, at[dim] = divmod(number, self.shape[dim])
        return replace(self, at=tuple(at))

    def leap(self) -> int:
        """Return the number of slices in one step of the first dimension that is kept at one index."""
        others = self.others
        return self.slices // self.shape[others[0]] if others else 0

    def next_rows(self) -> Slice:
        """Return the slice whose rows are the next dimension."""
        return self._turned(self.rows, self.columns, down=True)

    def next_columns(self) -> Slice:
        """Return the slice whose columns are the next dimension."""
        return self._turned(self.columns, self.rows, down=False)

    def _turned(self, turning: int | None, kept: int | None, *, down: bool) -> Slice:
        """Return the slice with the dimension after ``turning`` in its place; if that is the other one, they swap."""
        if self.rows is None or turning is None or kept is None:
            return self
        for further in range(1, len(self.shape) + 1):
            chosen = (turning + further) % len(self.shape)
            if self.shape[chosen] > 1 or len(self._movable()) < 2:
                break
        kept = turning if chosen == kept else kept
        rows, columns = (chosen, kept) if down else (kept, chosen)
        moved = replace(self, rows=rows, columns=columns)
        return replace(moved, at=moved._still(self.at))

    def _movable(self) -> list[int]:
        return [dim for dim, size in enumerate(self.shape) if size > 1]

    def _still(self, index: Sequence[int]) -> ElementIndex:
        return tuple([0 if dim in (self.rows, self.columns) else each for dim, each in enumerate(index)])

    def __str__(self) -> str:
        signs = {self.rows: "↓", self.columns: "→"}
        return f"[{', '.join([signs.get(dim) or plain(each) for dim, each in enumerate(self.at)])}]"


def first(shape: ElementIndex) -> Slice:
    """Return the first slice to look at: the last two dimensions that are more than one index long.

    Where those hold next to nothing, as in a convolution of 3 × 3, the two largest.
    """
    movable = [dim for dim, size in enumerate(shape) if size > 1]
    nothing = (0,) * len(shape)
    if len(movable) >= 2:
        if len(movable) > 2 and shape[movable[-2]] * shape[movable[-1]] < _LITTLE:
            movable = sorted(sorted(movable, key=lambda dim: -shape[dim])[:2])
        return Slice(shape, movable[-2], movable[-1], nothing)
    if movable or not shape:
        return Slice(shape, None, movable[0] if movable else None, nothing)
    return Slice(shape, None, len(shape) - 1, nothing)


def kernel_size(shape: ElementIndex) -> tuple[int, int] | None:
    """Return the rows and columns of a convolution's kernels; None where the shape does not look like one."""
    if len(shape) < 4 or 0 in shape or not all(1 < size <= _KERNEL for size in shape[-2:]):
        return None
    return shape[-2], shape[-1]


def parse_index(text: str, shape: ElementIndex) -> ElementIndex:
    """Return the index of each dimension in ``3, 17`` or ``-1 0``. Raises ValueError, with the sentence to show."""
    words = text.replace(",", " ").replace("[", " ").replace("]", " ").split()
    if len(words) != len(shape):
        raise ValueError(f"Type {len(shape)} numbers, one for each dimension.")
    found = []
    for word, size in zip(words, shape, strict=True):
        try:
            number = int(word[:20])
        except ValueError:
            raise ValueError(f'"{word[:20]}" is not a whole number.') from None
        if not -size <= number < size:
            raise ValueError(f"{number} is out of range: the last index is {plain(size - 1)}.")
        found.append(number % size)
    return tuple(found)
