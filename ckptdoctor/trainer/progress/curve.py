"""A line plot of fractions for terminals: eight dots a cell in braille, or one asterisk a cell in ASCII."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil, floor, isfinite

# How an axis may be divided, in thousandths: each divides 1,000, so that an axis never leaves 0 to 100 %; and none is
# so fine that noise looks like progress
_STEPS = (5, 10, 20, 50, 100, 200, 500)

# Which bit of a braille character (from U+2800) is the dot in row 0 to 3 of its left and of its right column:
# https://www.unicode.org/charts/PDF/U2800.pdf
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


def draw(values: Sequence[float], width: int, height: int, *, total: int = 0, ascii_only: bool = False) -> list[str]:
    """``height`` lines of at most ``width`` columns: the curve of ``values`` (fractions) over a percent axis.

    ``total`` is how many values there will be, so that a growing curve keeps its place; 0: as many as there are.
    Values that are not finite are left out, others are brought into 0 to 1. Without values the axis stands alone.
    """
    if height <= 0:
        return []
    points = [(index, min(max(value, 0.0), 1.0)) for index, value in enumerate(values) if isfinite(value)]
    low, high = _range([value for _, value in points])
    labels = _labels(low, high, height)
    margin = max(map(len, labels)) + 2
    cells = max(width - margin, 1)
    last = max(len(values), total, 1) - 1
    plot = _ascii if ascii_only else _braille
    rows = plot(points, last, cells, height, lambda value: (1000 * value - low) / (high - low))
    sides = "|+" if ascii_only else "│┤"
    lines = (f"{label:>{margin - 2}} {sides[bool(label)]}{row}" for label, row in zip(labels, rows, strict=True))
    return [line.rstrip()[: max(width, 0)] for line in lines]


def _range(values: Sequence[float]) -> tuple[int, int]:
    """The ends of the axis in thousandths, on steps so wide that about four of them hold all values."""
    if not values:
        return 0, 1000
    lowest, highest = round(1000 * min(values), 6), round(1000 * max(values), 6)
    step = next(step for step in _STEPS if 4 * step >= highest - lowest)
    low, high = floor(lowest / step) * step, ceil(highest / step) * step
    if low == high:  # one value, or all the same: in the middle
        return max(low - step, 0), min(high + step, 1000)
    return low, high


def _labels(low: int, high: int, height: int) -> list[str]:
    """One label a row: the ends, and the middle where a row stands for it."""
    labels = [""] * height
    labels[-1] = _label(low)
    labels[0] = _label(high)
    if height >= 5 and height % 2 and (low + high) % 2 == 0:
        labels[height // 2] = _label((low + high) // 2)
    return labels


def _label(thousandths: int) -> str:
    whole, rest = divmod(thousandths, 10)
    return f"{whole}.{rest} %" if rest else f"{whole} %"


def _braille(
    points: Sequence[tuple[int, float]], last: int, cells: int, height: int, place: Callable[[float], float]
) -> list[str]:
    codes = [[0x2800] * cells for _ in range(height)]
    for x, y in _dots(points, last, 2 * cells, 4 * height, place):
        codes[y // 4][x // 2] |= _BRAILLE[x % 2][y % 4]
    return ["".join(map(chr, row)).rstrip("\u2800") for row in codes]


def _ascii(
    points: Sequence[tuple[int, float]], last: int, cells: int, height: int, place: Callable[[float], float]
) -> list[str]:
    signs = [[" "] * cells for _ in range(height)]
    for x, y in _dots(points, last, cells, height, place):
        signs[y][x] = "*"
    return ["".join(row) for row in signs]


def _dots(
    points: Sequence[tuple[int, float]], last: int, columns: int, rows: int, place: Callable[[float], float]
) -> Iterator[tuple[int, int]]:
    """The dots (column, row from the top) of the curve: in each column from the lowest to the highest it has there."""
    for x, low, high in _extents(points, (columns - 1) / last if last else 0.0):
        top, bottom = (round((rows - 1) * (1 - place(value))) for value in (high, low))
        yield from ((x, y) for y in range(top, bottom + 1))


def _extents(points: Sequence[tuple[int, float]], scale: float) -> Iterator[tuple[int, float, float]]:
    """For each column that the polyline through the points crosses: its number, and the line's lowest and highest.

    A column is as wide as it is far to the next, and the line is cut at its sides, so that neighbours meet.
    """
    found: dict[int, tuple[float, float]] = {}

    def touch(x: float, value: float) -> None:
        low, high = found.get(round(x), (value, value))
        found[round(x)] = min(low, value), max(high, value)

    previous: tuple[float, float] | None = None
    for index, value in points:
        x = index * scale
        if previous is not None:
            x0, value0 = previous
            for column in range(round(x0), round(x)):
                side = value0 + (value - value0) * min(max((column + 0.5 - x0) / (x - x0), 0.0), 1.0)
                touch(column, side)
                touch(column + 1, side)
        touch(x, value)
        previous = x, value
    for column in sorted(found):
        yield column, *found[column]
