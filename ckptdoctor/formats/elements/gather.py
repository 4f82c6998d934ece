"""Gathers the elements of a strided view in C order, in bounded memory and without NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Union, cast

from ckptdoctor.checkpoint.tensor import contiguous_stride

# reads ``length`` bytes at ``offset`` of one storage
ReadBytes = Callable[[int, int], bytes]

# bytes that are held at once, about
BLOCK = 32 << 20

# item sizes that memoryview can step over; others are taken apart into units of such a size
_FORMATS = {8: "Q", 4: "I", 2: "H", 1: "B"}

Bytes = Union[bytes, bytearray]

Axes = list[tuple[int, int]]  # (size, stride), strides in units


def gather(
    read: ReadBytes, shape: tuple[int, ...], stride: tuple[int, ...], offset: int, itemsize: int, block: int = BLOCK
) -> Iterator[bytes]:
    """Yield the bytes of the view, chunk by chunk. ``stride`` and ``offset`` count elements of ``itemsize`` bytes."""
    if 0 in shape:
        return
    size = prod(shape) * itemsize
    if size <= block and stride == contiguous_stride(shape):  # nearly every tensor
        yield read(offset * itemsize, size)
        return
    unit = next(size for size in _FORMATS if itemsize % size == 0)
    count = itemsize // unit
    axes = [(size, step * count) for size, step in zip(shape, stride, strict=True)]
    if count > 1:
        axes.append((count, 1))
    yield from _blocks(read, _united(axes), offset * count, unit, block)


def _united(axes: Axes) -> Axes:
    """Return the same elements in fewer axes.

    Those of one index are gone, and those are joined that go on one another.
    """
    made: Axes = []
    for size, step in axes:
        if made and made[-1][1] == size * step:
            made[-1] = made[-1][0] * size, step
        elif size > 1:
            made.append((size, step))
    return made


def _blocks(read: ReadBytes, axes: Axes, start: int, unit: int, block: int) -> Iterator[bytes]:
    """Split the view along its first axes into parts that fit a block, each of which is then put in order."""
    if prod(size for size, _ in axes) * unit <= block:
        yield cast(bytes, _ordered(read, axes, start, unit, block))  # nobody changes it any more, so it is not copied
        return
    (size, step), rest = axes[0], axes[1:]
    rows = max(1, block // (prod(each for each, _ in rest) * unit))
    for first in range(0, size, rows):
        count = min(rows, size - first)
        inner = [(count, step), *rest] if count > 1 else rest
        yield from _blocks(read, inner, start + first * step, unit, block)


def _ordered(read: ReadBytes, axes: Axes, start: int, unit: int, block: int) -> Bytes:
    """Return one part that fits a block: read with few reads, then put in order."""
    span = sum((size - 1) * step for size, step in axes) + 1
    if span * unit <= 2 * block:
        return _picked(read(start * unit, span * unit), axes, unit)
    # far apart: fetch the parts along the axis with the widest steps one by one, and lay each where it belongs
    widest = max(range(len(axes)), key=lambda index: axes[index][1])
    size, step = axes[widest]
    rest = axes[:widest] + axes[widest + 1 :]
    made = bytearray(prod(each for each, _ in axes) * unit)
    with memoryview(made) as whole, whole.cast(_FORMATS[unit]) as target:  # type: ignore[call-overload]  # the formats are literals
        inner = prod(each for each, _ in axes[widest + 1 :])
        for index in range(size):
            _lay(target, _ordered(read, rest, start + index * step, unit, block), index, size, inner, unit)
    return made


def _lay(target: memoryview, part: Bytes, index: int, size: int, inner: int, unit: int) -> None:
    """Put the elements with this index along one axis of ``size`` where they belong: ``inner`` of them at a time."""
    source = memoryview(part).cast(_FORMATS[unit])  # type: ignore[call-overload]  # the formats are literals
    outer = len(source) // inner
    if outer <= inner:
        for at in range(outer):
            first = (at * size + index) * inner
            target[first : first + inner] = source[at * inner : (at + 1) * inner]
    else:
        for at in range(inner):
            target[index * inner + at :: size * inner] = source[at::inner]


def _packed(sizes: list[int]) -> Axes:
    """Return the axes of a C-contiguous array."""
    return [(size, prod(sizes[index + 1 :])) for index, size in enumerate(sizes)]


def _picked(data: bytes, axes: Axes, unit: int) -> Bytes:
    """Return the elements of a view of ``data`` in C order: one stepped copy for each line along the longest axis."""
    if axes == _packed([size for size, _ in axes]):
        return data
    if not axes:
        return data[:unit]
    targets = _packed([size for size, _ in axes])
    longest = max(range(len(axes)), key=lambda index: axes[index][0])
    (size, step), (_, target_step) = axes[longest], targets[longest]
    made = bytearray(prod(each for each, _ in axes) * unit)
    source, target = memoryview(data).cast(_FORMATS[unit]), memoryview(made).cast(_FORMATS[unit])  # type: ignore[call-overload]  # the formats are literals
    others = [index for index in range(len(axes)) if index != longest]
    for place in product(*(range(axes[index][0]) for index in others)):
        begin = sum(at * axes[index][1] for at, index in zip(place, others, strict=True))
        goal = sum(at * targets[index][1] for at, index in zip(place, others, strict=True))
        line = slice(goal, goal + (size - 1) * target_step + 1, target_step)
        if step:
            target[line] = source[begin : begin + (size - 1) * step + 1 : step]
        else:
            one = bytes(source[begin : begin + 1])
            target[line] = memoryview(one * size).cast(_FORMATS[unit])  # type: ignore[call-overload]  # the formats are literals
    return made
