"""Numbers of several parts, so many of each at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ckptdoctor.casting.arrays import Array, array_of, widened
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.edits.elements import Elements

BLOCK = 4 << 20  # bytes that are read at once
PIECE = 1 << 17  # numbers that are worked on at once: they stay in the cache

# gives the bytes of elements in C order, some at a time, at most about so many
Read = Callable[[Elements, int], Iterator[bytes]]


class Stream:
    """The numbers of one part in C order."""

    def __init__(self, part: Elements, dtype: str, read: Read) -> None:
        self.dtype = dtype
        self._chunks = read(part, BLOCK)
        self._width = BY_NAME[dtype].bits // 8
        self._left: bytes | memoryview = b""

    def take(self, count: int) -> Array:
        """Return the next ``count`` numbers, as arrays hold those of their dtype."""
        wanted = count * self._width
        made = bytearray()
        while len(made) < wanted:
            if not self._left:
                self._left = memoryview(next(self._chunks, b""))
                if not self._left:
                    raise ValueError(f"{wanted - len(made)} bytes are missing at the end of a tensor")
            some = self._left[: wanted - len(made)]
            made += some
            self._left = self._left[len(some) :]
        return array_of(made, self.dtype)

    def doubles(self, *shape: int) -> Array:
        """Return the next numbers, so many as this shape has, in float64."""
        count = 1
        for size in shape:
            count *= size
        return doubles(self.take(count), self.dtype).reshape(shape)


def doubles(numbers: Array, dtype: str) -> Array:
    """Return the same numbers in float64; a copy where they are that already."""
    return widened(numbers, dtype).astype(np.float64)


def whole(part: Elements, dtype: str, read: Read) -> Array:
    """Return all numbers of a part, in float64."""
    return doubles(array_of(bytearray().join(read(part, BLOCK)), dtype), dtype)
