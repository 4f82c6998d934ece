"""Compares storages that were made again with the original: every element must be where the edits say.

Nothing that wrote the output is used: each view of the original is compared, tile by tile, with the place in the output
that its elements must have got.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import product
from math import prod
from typing import Literal, Union

from ckptdoctor.checkpoint import Extent, FileSource, progress
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits.elements import (
    Calculated,
    Converted,
    Dequantized,
    Elements,
    Joined,
    Normed,
    Reshaped,
    Scattered,
    Sliced,
    View,
    nbytes,
)
from ckptdoctor.errors import WriteError
from ckptdoctor.formats.elements import chunks
from ckptdoctor.noun import noun
from ckptdoctor.prove.norms import require_weights
from ckptdoctor.prove.quantization import require_dequantized
from ckptdoctor.writing.checksums import Bytes

_BLOCK = 8 << 20  # bytes of a tile
_SPARSE = 4  # so many times more than what is wanted of a window may be read with it

_UNITS: tuple[tuple[int, Literal["Q", "I", "H", "B"]], ...] = ((8, "Q"), (4, "I"), (2, "H"), (1, "B"))


@noun
class _Axis:
    """One dimension of a comparison: its size, and the steps on both sides, in units."""

    size: int
    there: int
    here: int


class _Bytes:
    """Bytes of a file from ``base`` on, or in memory. Reading those of the output is what proving is."""

    def __init__(self, source: FileSource | bytes | memoryview | Sliced, base: int, *, output: bool = False) -> None:
        self._source = source
        self._base = base
        self._output = output

    def read(self, offset: int, length: int) -> bytes:
        if self._output:
            progress.advance(length)
        begin = self._base + offset
        source = self._source
        return source.read(begin, length) if isinstance(source, FileSource) else bytes(source[begin : begin + length])


def require_elements(elements: Elements, places: Mapping[str, Extent], place: Extent) -> None:
    """Raise WriteError unless the bytes at ``place`` are the elements; ``places`` says where their sources are."""
    if place.length != nbytes(elements):
        raise _wrong_length()
    with ExitStack() as stack:
        paths = {place.file, *[each.file for each in places.values()]}
        files = {path: stack.enter_context(FileSource(path)) for path in paths}
        for view, start, stride in _destinations(elements, 0, contiguous_stride(elements.shape)):
            if not isinstance(view, View):
                _require_computed(
                    view, files, places, _Bytes(files[place.file], place.offset + _bytes(view, start), output=True)
                )
                continue
            if view.held is not None:
                source = _Bytes(view.held, view.start)
            else:
                source = _Bytes(files[places[view.source].file], places[view.source].offset + view.start)
            target = _Bytes(files[place.file], place.offset + start * view.width, output=True)
            if not _equal(view, stride, source, target):
                raise WriteError(f"Elements of storage {view.source} differ in the output; it was discarded.")


def require_casts(casts: Iterable[tuple[Converted, Mapping[str, Extent], Extent]]) -> None:
    """Do the same for small elements that are cast: at once for all between the same two dtypes."""
    together: dict[tuple[str, str], tuple[Converted, list[bytes], list[bytes]]] = {}
    with Bytes() as files:
        for numbers, places, place in casts:

            def original(name: str, offset: int, length: int, places: Mapping[str, Extent] = places) -> bytes:
                return files.file(places[name].file).read(places[name].offset + offset, length)

            if place.length != nbytes(numbers):
                raise _wrong_length()
            _, given, made = together.setdefault((numbers.kind, numbers.dtype), (numbers, [], []))
            given += chunks(numbers.parts[0], original)
            made.append(files.file(place.file).read(place.offset, place.length))
            progress.advance(place.length)
    for numbers, given, made in together.values():
        _require_nearest(b"".join(given), b"".join(made), numbers)


_Computed = Union[Normed, Dequantized, Calculated, Converted, Scattered]


def _bytes(weights: _Computed, start: int) -> int:
    """Return where the element ``start`` begins."""
    return start * nbytes(weights) // max(1, prod(weights.shape))


def _require_computed(
    weights: _Computed, files: Mapping[str, FileSource], places: Mapping[str, Extent], target: _Bytes
) -> None:
    def original(name: str, offset: int, length: int) -> bytes:
        return files[places[name].file].read(places[name].offset + offset, length)

    def pieces(part: Elements) -> Iterator[bytes]:
        return chunks(part, original, _BLOCK)

    if isinstance(weights, Dequantized):
        require_dequantized(weights, pieces, target.read)
    elif isinstance(weights, Calculated):
        from ckptdoctor.computing.proof import require_calculated

        require_calculated(weights, lambda part, size: chunks(part, original, min(_BLOCK, size)), target.read)
    elif isinstance(weights, Converted):
        _require_cast(weights, pieces, target.read)
    elif isinstance(weights, Scattered):
        require_scattered(weights, pieces, target.read)
    else:
        require_weights(weights, pieces, target.read)


def _destinations(
    elements: Elements, start: int, stride: tuple[int, ...]
) -> Iterator[tuple[View | _Computed, int, tuple[int, ...]]]:
    """Yield every view with the first element of its place in the output, and its strides there.

    What is computed comes whole: it is made up of whole storages only, so that its place is one in C order.
    """
    if isinstance(elements, (View, Normed, Dequantized, Calculated, Converted, Scattered)):
        yield elements, start, stride
    elif isinstance(elements, Reshaped):  # made up of whole storages only, so that its place is one in C order
        yield from _destinations(elements.inner, start, contiguous_stride(elements.inner.shape))
    else:
        assert isinstance(elements, Joined)
        for part in elements.parts:
            yield from _destinations(part, start, stride)
            start += part.shape[elements.dim] * stride[elements.dim]


def _equal(view: View, stride: tuple[int, ...], source: _Bytes, target: _Bytes) -> bool:
    unit, code = next((unit, code) for unit, code in _UNITS if view.width % unit == 0)
    count = view.width // unit
    axes = [
        _Axis(size, there * count, here * count)
        for size, there, here in zip(view.shape, view.stride, stride, strict=True)
        if size != 1
    ]
    if any(axis.size == 0 for axis in axes):
        return True
    axes = _united([*axes, _Axis(count, 1, 1)] if count > 1 or not axes else axes)
    return all(
        _tile_equal(tile, there * unit, here * unit, unit, code, source, target)
        for tile, there, here in _tiles(axes, unit)
    )


def _united(axes: list[_Axis]) -> list[_Axis]:
    """Return the axes with those made one that follow each other without gaps; then in the order of the source."""
    made: list[_Axis] = []
    for axis in axes:
        last = made[-1] if made else None
        if last and (last.there, last.here) == (axis.size * axis.there, axis.size * axis.here):
            made[-1] = _Axis(last.size * axis.size, axis.there, axis.here)
        else:
            made.append(axis)
    return sorted(made, key=lambda axis: -axis.there)


def _tiles(axes: list[_Axis], unit: int) -> Iterator[tuple[list[_Axis], int, int]]:
    """Yield parts of at most a block, with where each begins on both sides.

    The outer axes of the source are cut first.
    """
    inner = prod(axis.size for axis in axes) * unit
    outer = 0
    while outer < len(axes) and inner > _BLOCK:
        inner //= axes[outer].size
        outer += 1
    if not outer:
        yield axes, 0, 0
        return
    cut = axes[outer - 1]
    step = max(1, _BLOCK // inner)
    ranges = [(first, min(step, cut.size - first)) for first in range(0, cut.size, step)]
    for index in product(*(range(axis.size) for axis in axes[: outer - 1])):
        there = sum(at * axis.there for at, axis in zip(index, axes, strict=False))
        here = sum(at * axis.here for at, axis in zip(index, axes, strict=False))
        for first, size in ranges:
            tile = [_Axis(size, cut.there, cut.here), *axes[outer:]]
            yield tile, there + first * cut.there, here + first * cut.here


def _tile_equal(
    tile: list[_Axis],
    there: int,
    here: int,
    unit: int,
    code: Literal["Q", "I", "H", "B"],
    source: _Bytes,
    target: _Bytes,
) -> bool:
    """Compare line by line, along the axis that takes the fewest reads."""
    total = prod(axis.size for axis in tile)
    spans = [sum((axis.size - 1) * step(axis) for axis in tile) + 1 for step in (_there, _here)]
    lines = [axis for axis in tile if axis.size > 1] or tile[:1]
    one_window = [span <= _SPARSE * total for span in spans]
    if all(one_window):
        line = max(lines, key=lambda axis: axis.size)
    else:  # along what lies together on the side that cannot be read at once
        line = min(lines, key=_there if one_window[1] else _here)
    rest = [axis for axis in tile if axis is not line]
    one = _Lines(source, there, spans[0] if one_window[0] else 0, unit, code, line.size, line.there)
    other = _Lines(target, here, spans[1] if one_window[1] else 0, unit, code, line.size, line.here)
    for index in product(*(range(axis.size) for axis in rest)):
        first = sum(at * axis.there for at, axis in zip(index, rest, strict=True))
        second = sum(at * axis.here for at, axis in zip(index, rest, strict=True))
        if one.at(first) != other.at(second):
            return False
    return True


def _there(axis: _Axis) -> int:
    return axis.there


def _here(axis: _Axis) -> int:
    return axis.here


class _Lines:
    """Lines of ``count`` units, ``step`` units apart, out of a window read at once (``span`` 0: each by itself)."""

    def __init__(
        self,
        data: _Bytes,
        base: int,
        span: int,
        unit: int,
        code: Literal["Q", "I", "H", "B"],
        count: int,
        step: int,
    ) -> None:
        self._data, self._base, self._unit, self._code = data, base, unit, code
        self._count, self._step = count, step
        self._window = memoryview(data.read(base, span * unit)).cast(code) if span else None

    def at(self, first: int) -> bytes:
        """Return the line that begins ``first`` units behind the base."""
        if self._window is None and self._step > _SPARSE:
            places = range(first, first + self._count * self._step, self._step)
            return b"".join([self._data.read(self._base + at * self._unit, self._unit) for at in places])
        reach = (self._count - 1) * self._step + 1
        if self._window is not None:
            found = self._window[first : first + reach]
        else:
            found = memoryview(self._data.read(self._base + first * self._unit, reach * self._unit)).cast(self._code)
        return (found[:: self._step] if self._step else found[:1]).tobytes() * (1 if self._step else self._count)


def _require_cast(
    numbers: Converted, pieces: Callable[[Elements], Iterator[bytes]], read: Callable[[int, int], bytes]
) -> None:
    """Raise WriteError unless ``read`` gives the bytes of the numbers; ``pieces`` gives those of what was cast."""
    from ckptdoctor.casting.cast import in_pieces

    width, at = BY_NAME[numbers.kind].bits // 8, 0
    for given in in_pieces(pieces(numbers.parts[0]), width):
        length = len(given) // width * numbers.width
        _require_nearest(given, read(at, length), numbers)
        at += length


def _require_nearest(given: bytes | memoryview, made: bytes, numbers: Converted) -> None:
    from ckptdoctor.casting.proof import is_cast

    if not is_cast(given, made, numbers.kind, numbers.dtype):
        raise WriteError(f"A number of the output is not the nearest one that {numbers.dtype} has; it was discarded.")


def _wrong_length() -> WriteError:
    return WriteError("A storage of the output has a wrong length; it was discarded.")


# ---- elements of a sparse tensor that became dense


_PIECE = 4 << 20  # bytes that are counted at once

Read = Callable[[int, int], bytes]  # (first byte, length)
Chunks = Callable[[Elements], Iterator[bytes]]


def require_scattered(dense: Scattered, chunks: Chunks, read: Read) -> None:
    """Raise WriteError unless ``read`` gives the bytes of the dense tensor; ``chunks`` gives those of its parts."""
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
        raise WriteError("A tensor of the output differs from the sparse one that it was made from; it was discarded.")


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
