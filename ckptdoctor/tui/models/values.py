"""Writes numbers of a dtype with no more digits than it holds, and draws them: bars, cells, shades."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import frexp, isfinite, isinf, isnan, ldexp, log
from typing import Union

from ckptdoctor.checkpoint.dtypes import DType

AnyNumber = Union[float, int, bool, complex]
RGB = tuple[int, int, int]

_PLAIN = 1e7  # whole numbers below this are written out
_BARS = " ▁▂▃▄▅▆▇█"
_LARGEST_KERNEL = 6  # cells in a row for one value of a kernel


def text(value: AnyNumber, dtype: DType) -> str:
    """Return the shortest text for this value and no other of the dtype; a quantized one counts as float32."""
    if isinstance(value, complex):
        half = value.imag
        joined = "-" if half < 0 or (half == 0 and str(half)[0] == "-") else "+"
        return f"{_float(value.real, dtype)}{joined}{_float(abs(half), dtype)}j"
    if isinstance(value, float):
        return _float(value, dtype)
    return str(value)


def _float(value: float, dtype: DType) -> str:
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "inf" if value > 0 else "-inf"
    if abs(value) < _PLAIN and value == int(value):
        return "-0" if str(value) == "-0.0" else str(int(value))
    if dtype.mantissa >= 52 or dtype.kind in ("int", "uint"):
        return _tidy(repr(value))
    mantissa, exponent = (dtype.mantissa, dtype.exponent) if dtype.exponent else (23, 8)
    near = _gap(value, mantissa, exponent) / 2
    for digits in range(17):
        found = f"{value:.{digits}e}"
        if abs(float(found) - value) < near:
            return _tidy(f"{float(found):.{max(1, digits + 1)}g}")
    return _tidy(repr(value))


def _gap(value: float, mantissa: int, exponent: int) -> float:
    """Return the distance to the nearest other number of such a dtype; all below the normal numbers have the same."""
    share, power = frexp(value)
    least = 2 - (1 << (exponent - 1)) if exponent > 1 else 0  # one less where infinities have no exponent of their own
    if abs(share) == 0.5:  # the one nearer to zero is half as far
        power -= 1
    return ldexp(1.0, max(power - 1, least - 1) - mantissa)


def _tidy(written: str) -> str:
    head, mark, exponent = written.partition("e")
    if mark:
        return f"{head}e{int(exponent)}"
    return head.removesuffix(".0")


# histograms


def fewer(counts: Sequence[int], columns: int) -> list[int]:
    """Return the counts in at most ``columns``: neighbours added up, or each as wide as there is room for."""
    if not counts or columns < 1:
        return []
    if len(counts) <= columns:
        wide = columns // len(counts)
        return [count for count in counts for _ in range(wide)]
    step = -(-len(counts) // columns)
    return [sum(counts[at : at + step]) for at in range(0, len(counts), step)]


def filling(counts: Sequence[int], columns: int) -> list[int]:
    """Return the counts, those of neighbours added up where there are too many, in exactly so many ``columns``."""
    drawn = fewer(counts, columns)
    return [drawn[at * len(drawn) // columns] for at in range(columns)] if drawn else []


def bars(counts: Sequence[float], height: int, logarithmic: bool = False) -> list[str]:
    """Return lines of blocks, from the top; whatever occurs at all has a mark."""
    sizes = [log(1 + count) if logarithmic else float(count) for count in counts]
    top = max(sizes, default=0.0)
    if not top:
        return [" " * len(counts)] * height
    eighths = [max(1, round(8 * height * each / top)) if each else 0 for each in sizes]
    return ["".join([_BARS[max(0, min(8, each - 8 * line))] for each in eighths]) for line in range(height - 1, -1, -1)]


def axis(low: float, high: float, columns: int) -> str:
    """Return a line with a mark where zero is."""
    if low < 0 < high and columns > 1:
        most = max(-low, high)
        at = min(columns - 1, int(columns * (-low / most) / (high / most - low / most)))
        return "─" * at + "┼" + "─" * (columns - at - 1)
    return "─" * columns


def by_size(sizes: Sequence[tuple[int, int, int]], zeros: int) -> tuple[list[int], int]:
    """Return counts by exponent, largest negative sizes first, zeros in the middle; and the least exponent."""
    if not sizes:
        return [zeros], 0
    low, high = sizes[0][0], sizes[-1][0]
    known = {exponent: (below, above) for exponent, below, above in sizes}
    every = [known.get(each, (0, 0)) for each in range(low, high + 1)]
    below = [each[0] for each in reversed(every)] if any(each[0] for each in every) else []
    return [*below, zeros, *[each[1] for each in every]], low


# heatmaps

GridCells = Sequence[Sequence[Union[float, None]]]


def limit(cells: GridCells) -> float:
    """Return the size that gets the full colour: one in a hundred may be larger, so that one outlier hides nothing."""
    sizes = sorted([abs(each) for row in cells for each in row if each is not None and isfinite(each)])
    return sizes[min(len(sizes) - 1, len(sizes) * 99 // 100)] or sizes[-1] if sizes else 0.0


def zoomed(cells: GridCells, rows: int, columns: int) -> list[list[float | None]]:
    """Return the cells in so many rows and columns: each as high and as wide as there is room for."""
    if not cells or not cells[0]:
        return []
    high, wide = max(rows, len(cells)), max(columns, len(cells[0]))
    down = [at * len(cells) // high for at in range(high)]
    across = [at * len(cells[0]) // wide for at in range(wide)]
    return [[cells[row][column] for column in across] for row in down]


@dataclass(frozen=True, slots=True)
class KernelGrid:
    """How kernels of ``height`` by ``width`` values are side by side in a picture, ``times`` as large, with gaps."""

    height: int
    width: int
    down: int
    across: int
    times: int

    @property
    def count(self) -> int:
        """The number of kernels that there is room for."""
        return self.down * self.across

    def cells(self, kernels: GridCells) -> list[list[float | None]]:
        """Return the picture of kernels, each given as its values row by row."""
        high, wide = self.height * self.times + 1, self.width * self.times + 1
        lines = -(-len(kernels) // self.across)
        found: list[list[float | None]] = [[None] * (self.across * wide - 1) for _ in range(lines * high - 1)]
        for number, kernel in enumerate(kernels):
            top, left = number // self.across * high, number % self.across * wide
            for row in range(high - 1):
                line = kernel[row // self.times * self.width :][: self.width]
                found[top + row][left : left + wide - 1] = [each for each in line for _ in range(self.times)]
        return found

    def at(self, row: int, column: int) -> tuple[int, int, int] | None:
        """Return the kernel at a place of the picture, and the row and column in it; None for a gap."""
        down, row = divmod(row, self.height * self.times + 1)
        across, column = divmod(column, self.width * self.times + 1)
        if row == self.height * self.times or column == self.width * self.times or across >= self.across:
            return None
        return down * self.across + across, row // self.times, column // self.times


def kernel_grid(kernel: tuple[int, int], count: int, rows: int, columns: int) -> KernelGrid:
    """Return kernels as large as there is room for to show all of them; else as small as they can be drawn."""
    height, width = kernel
    for times in range(_LARGEST_KERNEL, 0, -1):
        down, across = (rows + 1) // (height * times + 1), (columns + 1) // (width * times + 1)
        if down * across >= count:
            break
    across = max(1, min(across, count))
    return KernelGrid(height, width, max(1, min(down, -(-count // across))), across, times)


def halves(cells: GridCells) -> Iterator[list[tuple[float | None, float | None]]]:
    """Yield two rows of cells as one line of pairs, upper and lower."""
    for at in range(0, len(cells), 2):
        lower = cells[at + 1] if at + 1 < len(cells) else [None] * len(cells[at])
        yield list(zip(cells[at], lower, strict=True))


@dataclass(frozen=True, slots=True)
class Colours:
    """The looks of a cell: from ``negative`` over ``zero`` to ``positive``, and what is not a number."""

    negative: RGB
    zero: RGB
    positive: RGB
    unknown: RGB
    infinite: RGB

    def of(self, value: float | None, most: float) -> RGB | None:
        """Return the colour of a value, where ``most`` has the full one; None where there is no value."""
        if value is None:
            return None
        if isnan(value):
            return self.unknown
        if isinf(value):
            return self.infinite
        share = min(1.0, abs(value) / most) ** 0.75 if most else 0.0
        end = self.negative if value < 0 else self.positive
        mixed = [round(a + (b - a) * share) for a, b in zip(self.zero, end, strict=True)]
        return mixed[0], mixed[1], mixed[2]


DARK = Colours((84, 160, 235), (24, 28, 34), (240, 148, 62), (240, 80, 200), (245, 235, 90))
LIGHT = Colours((20, 92, 170), (240, 240, 236), (196, 86, 8), (190, 20, 140), (150, 120, 0))

_POSITIVE, _NEGATIVE = " ░▒▓█", " ·-=#"  # without colours


def shade(value: float | None, most: float) -> str:
    """Return a cell without colour: blocks for positive values, signs for negative ones."""
    if value is None:
        return " "
    if isnan(value):
        return "?"
    if isinf(value):
        return "!"
    share = min(1.0, abs(value) / most) if most else 0.0
    return (_NEGATIVE if value < 0 else _POSITIVE)[min(4, int(share * 5))]


def merged(upper: float | None, lower: float | None) -> float | None:
    """Return one value for two cells: the one of larger size, or NaN where either is NaN."""
    if upper is None or lower is None:
        return lower if upper is None else upper
    if isnan(upper) or isnan(lower):
        return float("nan")
    return upper if abs(upper) >= abs(lower) else lower
