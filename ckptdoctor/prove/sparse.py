"""Holds dense tensors against the sparse ones that they were made of: each value in its place, and zeros elsewhere.

Nothing that made them is used: each entry is looked up by itself, and the bytes that are not zero are counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from math import prod

from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits.elements import Elements, Scattered
from ckptdoctor.errors import WriteError

_PIECE = 4 << 20  # bytes that are counted at once

Read = Callable[[int, int], bytes]  # (first byte, length)
Chunks = Callable[[Elements], Iterator[bytes]]


def require_scattered(dense: Scattered, chunks: Chunks, read: Read) -> None:
    """Raises WriteError unless ``read`` gives the bytes of the dense tensor; ``chunks`` gives those of its parts."""
    *parts, values = [b"".join(chunks(part)) for part in dense.parts]
    numbers = [_integers(data, kind) for data, kind in zip(parts, dense.kinds, strict=True)]
    places, count = _entries(dense, numbers) if len(numbers) == 1 else _blocks(dense, *numbers)
    size = count * dense.width
    same = all(
        read(place * dense.width, size) == values[number * size : (number + 1) * size]
        for number, place in enumerate(places)
    )
    total = prod(dense.shape) * dense.width
    zeros = sum([read(at, min(_PIECE, total - at)).count(0) for at in range(0, total, _PIECE)])
    if not same or len(set(places)) != len(places) or total - zeros != len(values) - values.count(0):
        raise WriteError("A tensor of the output is not the sparse one that it was made of; it was thrown away.")


def _integers(data: bytes, kind: str) -> list[int]:
    width = 8 if kind == "int64" else 4
    return [int.from_bytes(data[at : at + width], "little", signed=True) for at in range(0, len(data), width)]


def _entries(dense: Scattered, numbers: list[list[int]]) -> tuple[list[int], int]:
    depth, entries = dense.parts[0].shape
    rows = [numbers[0][dim * entries : (dim + 1) * entries] for dim in range(depth)]
    steps = contiguous_stride(dense.shape)[:depth]
    where = [sum(index * step for index, step in zip(entry, steps, strict=True)) for entry in zip(*rows, strict=True)]
    return where, prod(dense.shape[depth:])


def _blocks(dense: Scattered, lines: list[int], others: list[int]) -> tuple[list[int], int]:
    height, width = dense.parts[2].shape[1:] or (1, 1)
    pairs = [(bisect_right(lines, number) - 1, other) for number, other in enumerate(others)]
    if dense.layout in ("sparse_csc", "sparse_bsc"):
        pairs = [(row, column) for column, row in pairs]
    step = dense.shape[1]
    return [(row * height + below) * step + column * width for row, column in pairs for below in range(height)], width
