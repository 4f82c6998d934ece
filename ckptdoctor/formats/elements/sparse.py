"""Makes the bytes of dense tensors out of sparse ones: zeros, and the values in their places."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from math import prod

from ckptdoctor.edits.elements import Elements, Scattered
from ckptdoctor.edits.sparse import BY_ROW, COO
from ckptdoctor.errors import RefusedError

_BLOCK = 1 << 20  # bytes that are given at once

# gives the bytes of elements in C order, some at a time, at most about so many
Read = Callable[[Elements, int], Iterator[bytes]]


def scattered(elements: Scattered, read: Read) -> Iterator[bytes]:
    """Yield the bytes in C order.

    Raises RefusedError for indices that are out of range, and for one that is there twice.
    """
    *indices, values = [b"".join(read(part, _BLOCK)) for part in elements.parts]
    numbers = [integers(data, kind) for data, kind in zip(indices, elements.kinds, strict=True)]
    places, count = _coo(elements, numbers[0]) if elements.layout == COO else _lines(elements, *numbers)
    size, width = count * elements.width, elements.width
    order: Sequence[int] = range(len(places))
    if any(places[number] > places[number + 1] for number in range(len(places) - 1)):
        order = sorted(order, key=places.__getitem__)
    made, at, last = bytearray(), 0, -1
    for number in order:
        if places[number] == last:
            raise RefusedError("A sparse tensor has one index several times: call .coalesce() on it and save it again.")
        last = places[number]
        while at < last * width:  # nothing but zeros up to here
            step = min(last * width - at, _BLOCK)
            made, at = made + bytes(step), at + step
            if len(made) >= _BLOCK:
                yield bytes(made)
                made = bytearray()
        made += values[number * size : (number + 1) * size]
        at += size
    total = prod(elements.shape) * width
    yield bytes(made)
    for start in range(at, total, _BLOCK):
        yield bytes(min(_BLOCK, total - start))


def integers(data: bytes, kind: str) -> array[int]:
    """Return indices, as little-endian files hold them."""
    found: array[int] = array("q" if kind == "int64" else "i")
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _coo(elements: Scattered, indices: Sequence[int]) -> tuple[array[int], int]:
    """Return the number of the first element of each entry, and how many follow it."""
    depth = elements.parts[0].shape[0]
    entries = elements.parts[0].shape[1]
    places: array[int] = array("q", bytes(8 * entries))
    for dim in range(depth):
        size = elements.shape[dim]
        for number in range(entries):
            index = indices[dim * entries + number]
            _require(0 <= index < size)
            places[number] = places[number] * size + index
    inner = prod(elements.shape[depth:])
    return array("q", [place * inner for place in places]), inner


def _lines(elements: Scattered, lines: Sequence[int], others: Sequence[int]) -> tuple[array[int], int]:
    """Return the same of rows or columns, or of rows or columns of blocks."""
    height, width = elements.parts[2].shape[1:] or (1, 1)
    columns = elements.shape[1]
    by_row = elements.layout in BY_ROW
    limit = columns // width if by_row else elements.shape[0] // height
    _require(lines[0] == 0 and lines[-1] == len(others))
    places: array[int] = array("q")
    for line in range(len(lines) - 1):
        _require(0 <= lines[line] <= lines[line + 1] <= len(others))
        for other in others[lines[line] : lines[line + 1]]:
            _require(0 <= other < limit)
            row, column = (line, other) if by_row else (other, line)
            places.extend([(row * height + inside) * columns + column * width for inside in range(height)])
    return places, width


def _require(sound: bool) -> None:
    if not sound:
        raise RefusedError("A sparse tensor has indices out of bounds: it is damaged, so it is not made dense.")
