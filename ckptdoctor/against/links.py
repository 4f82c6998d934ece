"""Says which elements of a source are which of an export, and in what order they are there; and reads both in pairs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ckptdoctor.against.compare import Meter
from ckptdoctor.against.elements import Elements, Reader
from ckptdoctor.casting.arrays import Array
from ckptdoctor.noun import noun, replace

# the order of elements in an export, as that of the source has become
AS_IS, TRANSPOSED = "", "transposed"
# rows of each head: the first and the second half in turn, as Meta and llama.cpp have them; and back
PAIRED, HALVED = "rotary pairs", "rotary halves"

_CHUNK = 1 << 17  # elements that are compared at once: all of it stays in the cache of a core
_PART = 1 << 24  # elements of a link that one thread is given
_SQUARE = 64  # rows and columns of what is looked at of a transposed one, each of which is read by itself
_SAMPLE = 1 << 14  # elements of each place that is looked at before all is compared
_LANE = 4  # columns of a matrix that are turned as one value: half the time
_FEWEST = 16  # columns of one that are turned at once


@noun
class Link:
    """``count`` elements of a source that are those of an export, each from the element ``…_at`` on.

    ``head`` is how many rows a head has, where its rows are in another order. ``shifted``: one was added to each. Of
    transposed matrices the elements are a box: ``source_at`` and ``export_at`` are (row, column) there, and ``box``
    has the rows and columns of the export.
    """

    source: str
    export: str
    count: int
    order: str = AS_IS
    source_at: tuple[int, int] = (0, 0)
    export_at: tuple[int, int] = (0, 0)
    head: int = 0
    shifted: bool = False
    box: tuple[int, int] = (0, 0)


def whole(source: Elements, export: Elements, order: str = AS_IS, head: int = 0, shifted: bool = False) -> Link | None:
    """Return the link of two whole tensors; None where their shapes do not allow it."""
    if source.count != export.count or (shifted and not export.dtype.startswith(("float", "bfloat"))):
        return None
    if order == TRANSPOSED:
        if source.matrix is None or export.matrix != source.matrix[::-1]:
            return None
        return Link(source.name, export.name, export.count, order, box=export.matrix)
    if head and (not source.shape or head % 2 or source.shape[0] % head or head > source.shape[0]):
        return None
    return Link(source.name, export.name, export.count, order, head=head, shifted=shifted)


def runs(link: Link, export: Elements, source: Elements) -> Iterator[tuple[int, int]]:
    """Yield the parts of a link that are compared at once: its elements, or for transposed ones rows of the export."""
    if link.order == TRANSPOSED:
        step = max(_FEWEST, _CHUNK // max(1, link.box[1]) // _LANE * _LANE)
        total = link.box[0]
    else:
        step, total = _step(link, export, source), link.count
    for first in range(0, total, step):
        yield first, min(first + step, total)


def _step(link: Link, export: Elements, source: Elements) -> int:
    block = max(export.unit, source.unit)
    if link.head:
        block = max(block, link.head * row_size(source))
    return max(1, _CHUNK // block) * block


def row_size(source: Elements) -> int:
    """Return how many elements a row has: all that follow the first dimension."""
    return source.count // source.shape[0] if source.shape and source.shape[0] else 1


def parts(link: Link, export: Elements, source: Elements) -> Iterator[list[tuple[int, int]]]:
    """Yield the runs of a link in groups, one for a thread each."""
    group: list[tuple[int, int]] = []
    held = 0
    for each in runs(link, export, source):
        group.append(each)
        held += (each[1] - each[0]) * (link.box[1] if link.order == TRANSPOSED else 1)
        if held >= _PART:
            yield group
            group, held = [], 0
    if group or not link.count:
        yield group


def hear(meter: Meter, link: Link, run: tuple[int, int], source: Reader, export: Reader) -> None:
    """Have a meter hear one run of a link."""
    first, last = run
    if link.order == TRANSPOSED:
        _hear_box(meter, link, run, source, export)
        return
    count = last - first
    held = export.stored(link.export_at[0] + first, count)
    if link.head:
        given = _reordered(source.numbers(link.source_at[0] + first, count), link, row_size(source.what))
    else:
        given = source.stored(link.source_at[0] + first, count)
    meter.hear(given, held, link.export_at[0] + first)


def _reordered(values: Array, link: Link, row: int) -> Array:
    halves = (2, link.head // 2) if link.order == PAIRED else (link.head // 2, 2)
    return np.ascontiguousarray(values.reshape(-1, *halves, row).swapaxes(1, 2)).reshape(-1)


def _hear_box(meter: Meter, link: Link, run: tuple[int, int], source: Reader, export: Reader) -> None:
    first, last = run
    (source_row, source_column), (export_row, export_column) = link.source_at, link.export_at
    given = turned(source.box((source_row, source_row + link.box[1]), (source_column + first, source_column + last)))
    at = (export_row + first) * export.what.shape[-1] + export_column
    columns = (export_column, export_column + link.box[1])
    if export.what.packed:
        assert export.what.matrix is not None
        width = export.what.matrix[1]
        held = export.stored((export_row + first) * width, (last - first) * width)
    else:
        held = np.ascontiguousarray(export.box((export_row + first, export_row + last), columns)).reshape(-1)
    meter.hear(given.reshape(-1), held, at)


def turned(matrix: Array) -> Array:
    """Return a matrix, in whose rows numbers follow each other, with its rows as columns, and all of it in a row."""
    rows, columns = matrix.shape
    if columns % _LANE:
        return np.ascontiguousarray(matrix.T)
    lanes = matrix.view(f"V{_LANE * matrix.itemsize}")
    apart = np.ascontiguousarray(lanes.T).view(matrix.dtype).reshape(-1, rows, _LANE)
    return np.ascontiguousarray(apart.swapaxes(1, 2)).reshape(columns, rows)


def sampled(link: Link, source: Reader, export: Reader) -> bool:
    """Return whether the beginning, the middle and the end of a link are what they should be."""
    for part, run in dict.fromkeys(_places(link, export.what, source.what)):
        meter = Meter(source.what, export.what, link.shifted)
        hear(meter, part, run, source, export)
        if not meter.outcome().how:
            return False
    return True


def _places(link: Link, export: Elements, source: Elements) -> Iterator[tuple[Link, tuple[int, int]]]:
    if link.order == TRANSPOSED and not export.packed:
        for part in _squares(link):
            yield part, (0, part.box[0])
        return
    if link.order == TRANSPOSED:
        block, total, size = 1, link.box[0], max(1, _SAMPLE // max(1, link.box[1]))
    else:
        block = max(export.unit, source.unit, link.head * row_size(source) if link.head else 1)
        total, size = link.count, max(1, _SAMPLE // block) * block
    for begin in (0, total // 2 // block * block, max(0, total - size) // block * block):
        yield link, (begin, min(begin + size, total))


def _squares(link: Link) -> Iterator[Link]:
    """Yield small parts of a transposed link: its first corner, its middle and its last corner."""
    high, wide = [min(size, _SQUARE) for size in link.box]
    for share in (0, 1, 2):
        row, column = (link.box[0] - high) * share // 2, (link.box[1] - wide) * share // 2
        yield replace(
            link,
            count=high * wide,
            source_at=(link.source_at[0] + column, link.source_at[1] + row),
            export_at=(link.export_at[0] + row, link.export_at[1] + column),
            box=(high, wide),
        )
