"""Reads any run of the elements of a tensor, as they are stored: numbers, or whole blocks of packed ones."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

import numpy as np

from ckptdoctor.casting.arrays import Array, held_as
from ckptdoctor.checkpoint import Tensor
from ckptdoctor.formats.fresh.strided import refusal, segments
from ckptdoctor.formats.gguf.kinds import BY_NAME, PACKED
from ckptdoctor.noun import noun, replace
from ckptdoctor.values.diff_bytes import Data, Feed
from ckptdoctor.values.files import Files
from ckptdoctor.values.ggml_blocks import LEVELS, dequantized
from ckptdoctor.writing.recipe import Copy

_BOX = 1 << 21  # numbers of a matrix that are kept, of which columns are asked for one after another
_GAP = 16 << 10  # bytes between two rows that are read in less time than it takes to pass them over
_SKIPPED = 1 << 20  # bytes that are passed over at once
_NUMBERS = frozenset({"float", "int", "uint", "bool"})


@noun(slots=False)
class Elements:
    """The elements of one tensor of a file: ``packed`` is the format of their blocks, "" for plain numbers."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: Data
    packed: str = ""

    @property
    def label(self) -> str:
        """What the numbers are stored as, for people."""
        return self.packed or self.dtype

    @cached_property
    def count(self) -> int:
        """How many there are."""
        made = 1
        for each in self.shape:
            made *= each
        return made

    @cached_property
    def unit(self) -> int:
        """How many elements are stored together."""
        return BY_NAME[self.packed].elements if self.packed else 1

    @cached_property
    def unit_bytes(self) -> int:
        """How many bytes they take."""
        return BY_NAME[self.packed].nbytes if self.packed else held_as(self.dtype).itemsize

    @cached_property
    def matrix(self) -> tuple[int, int] | None:
        """Rows and columns, leaving out dimensions of size 1; None for what is not a matrix."""
        sizes = [each for each in self.shape if each != 1]
        return (sizes[0], sizes[1]) if len(sizes) == 2 else None

    @cached_property
    def starts(self) -> list[int]:
        """Where each run of bytes begins; empty where they can only be read from the first to the last."""
        found, at = [], 0
        for each in self.data:
            if not isinstance(each, Copy):
                return []
            found.append(at)
            at += each.length
        return found


def elements_of(tensor: Tensor, name: str, swapped: bool) -> Elements | str:
    """Return the elements of a tensor, or why they cannot be compared, as the end of a sentence."""
    if tensor.subclass is not None and tensor.subclass.startswith(PACKED):
        packed = tensor.subclass.removeprefix(PACKED)
        if packed not in LEVELS:
            return f"it is stored as {packed}, which ckptdoctor cannot unpack"
        if swapped:
            return f"it is stored as {packed} in big-endian order"
        blocks = tensor.parts[0]
        reason = refusal(blocks)
        return f"it {reason}" if reason else Elements(name, tensor.shape, "float32", segments(blocks), packed)
    plain = replace(tensor, subclass=None) if tensor.subclass is not None and not tensor.parts else tensor
    reason = refusal(tensor)
    if reason:
        return f"it {reason}"
    if plain.dtype.kind not in _NUMBERS or plain.dtype.bits % 8 or plain.dtype.name == "float4_e2m1fn_x2":
        return f"{plain.dtype.name} is not compared"
    return Elements(name, plain.shape, plain.dtype.name, segments(plain, swapped))


class Reader:
    """Reads the elements of one tensor for one thread; what it gives is valid until it is asked again."""

    def __init__(self, what: Elements, files: Files) -> None:
        self.what = what
        self._files = files
        self._room = bytearray()
        # what was read of a matrix: rows, the first column, one past the last, and the numbers
        self._boxed: tuple[tuple[int, int], int, int, Array] | None = None
        self._feed: Feed | None = None
        self._at = 0  # bytes that the feed has given

    def stored(self, first: int, count: int) -> Array:
        """Return so many elements: as ``casting.arrays`` holds them, or the bytes of their blocks."""
        what = self.what
        self._boxed = None  # it may be in the same room
        begin, length = first // what.unit * what.unit_bytes, count // what.unit * what.unit_bytes
        if len(self._room) < length:
            self._room = bytearray(length)
        view = memoryview(self._room)[:length]
        self._fill(begin, view)
        made = np.frombuffer(view, np.uint8)
        return made if what.packed else made.view(held_as(what.dtype))

    def numbers(self, first: int, count: int) -> Array:
        """Return so many elements, unpacked."""
        made = self.stored(first, count)
        return dequantized(made, self.what.packed)[0].reshape(-1) if self.what.packed else made

    def box(self, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        """Return a part of a matrix, unpacked: rows and columns from the first up to before the second.

        Columns behind it are read as well: mostly they are asked for next, and few rows are read at once so.
        """
        assert self.what.matrix is not None
        first, last = columns
        if self._boxed is None or self._boxed[0] != rows or first < self._boxed[1] or last > self._boxed[2]:
            most = max(last, min(self.what.matrix[1], first + _BOX // max(1, rows[1] - rows[0])))
            self._boxed = None  # the room that it was in is needed
            self._boxed = rows, first, most, self._box(rows, (first, most))
        return self._boxed[3][:, first - self._boxed[1] : last - self._boxed[1]]

    def _box(self, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        assert self.what.matrix is not None
        width = self.what.matrix[1]
        high = rows[1] - rows[0]
        if columns == (0, width):
            return self.numbers(rows[0] * width, high * width).reshape(high, width)
        wide, beyond = columns[1] - columns[0], (width - columns[1] + columns[0]) * self.what.unit_bytes
        few = beyond <= _GAP and high * width <= 4 * _BOX
        if self.what.packed or not self.what.starts or wide * 4 > width or few:
            return self.numbers(rows[0] * width, high * width).reshape(high, width)[:, slice(*columns)]
        made = np.empty((high, wide), held_as(self.what.dtype))
        for row in range(high):
            begin = ((rows[0] + row) * width + columns[0]) * self.what.unit_bytes
            self._fill(begin, memoryview(made[row]).cast("B"))
        return made

    def _fill(self, begin: int, view: memoryview) -> None:
        starts = self.what.starts
        if not starts:
            self._fill_in_order(begin, view)
            return
        number, done = bisect_right(starts, begin) - 1, 0
        while done < len(view):
            each = self.what.data[number]
            assert isinstance(each, Copy) and each.file is not None
            within = begin + done - starts[number]
            step = min(len(view) - done, each.length - within)
            self._files.fill(each.file, each.offset + within, view[done : done + step])
            done, number = done + step, number + 1

    def _fill_in_order(self, begin: int, view: memoryview) -> None:
        if self._feed is None or self._at > begin:
            self._feed, self._at = Feed(self.what.data, self._files), 0
        scratch = memoryview(bytearray(min(_SKIPPED, begin - self._at)))
        while self._at < begin:
            step = min(len(scratch), begin - self._at)
            self._feed.fill(scratch[:step])
            self._at += step
        self._feed.fill(view)
        self._at += len(view)
