"""Lines over the depth of a model, on a logarithmic scale, as a drawing that needs no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10

from ckptdoctor.noun import noun
from ckptdoctor.report.html.markup import coordinate, element, text

WIDTH, HEIGHT = 560.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 54.0, 10.0, 10.0, 26.0
_LABELS = 8  # of the axis of depth
_LETTERS = 10  # of one of them


@noun
class Point:
    """One tensor: the place of its block, a number, what it is called, and whether it holds NaN or infinity."""

    at: int
    value: float
    name: str
    odd: bool = False


@noun
class Line:
    """One kind of tensor through all blocks. ``colour`` is its number among those of the style sheet."""

    name: str
    points: tuple[Point, ...]
    colour: int = 0


def line_chart(lines: Sequence[Line], blocks: Sequence[str], label: str) -> str:
    """The drawing; "" where no number is above zero."""
    values = [point.value for line in lines for point in line.points if point.value > 0]
    if not values:
        return ""
    scale = _Scale(min(values), max(values), len(blocks))
    inside = [*_grid(scale), *_depths(scale, blocks)]
    for line in lines:
        inside += _drawn(line, scale)
    return element("svg", "".join(inside), viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}", role="img", aria_label=label)


class _Scale:
    """From numbers to places."""

    def __init__(self, low: float, high: float, blocks: int) -> None:
        self.ticks = _ticks(low, high)
        self.low, self.high = log10(min(self.ticks[0], low)), log10(max(self.ticks[-1], high))
        if self.high - self.low < 1e-9:
            self.low, self.high = self.low - 0.1, self.high + 0.1
        self.blocks = blocks

    def x(self, at: int) -> float:
        room = WIDTH - _LEFT - _RIGHT - 12
        return _LEFT + 6 + (room * at / (self.blocks - 1) if self.blocks > 1 else room / 2)

    def y(self, value: float) -> float:
        share = (log10(value) - self.low) / (self.high - self.low)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers around both: powers of ten where they are far apart, else 1, 2 and 5 of each."""
    first, last = floor(log10(low)), ceil(log10(high))
    digits = (1.0,) if last - first > 3 else (1.0, 2.0, 5.0)
    every = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
    below = [tick for tick in every if tick <= low * 1.0001]
    above = [tick for tick in every if tick >= high * 0.9999]
    chosen = [tick for tick in every if tick >= below[-1] and tick <= above[0]] if below and above else every
    step = -(-len(chosen) // 7)
    return chosen[::step] if step > 1 else chosen


def _grid(scale: _Scale) -> Iterator[str]:
    for tick in scale.ticks:
        y = coordinate(scale.y(tick))
        yield element("line", x1=coordinate(_LEFT), x2=coordinate(WIDTH - _RIGHT), y1=y, y2=y, class_="grid")
        yield element("text", text(f"{tick:g}"), x=coordinate(_LEFT - 7), y=y, dy="0.35em", class_="end")


def _depths(scale: _Scale, blocks: Sequence[str]) -> Iterator[str]:
    step = max(1, -(-len(blocks) // _LABELS))
    for at in range(0, len(blocks), step):
        shown = blocks[at] if len(blocks[at]) <= _LETTERS else f"…{blocks[at][1 - _LETTERS :]}"
        yield element("text", text(shown), x=coordinate(scale.x(at)), y=coordinate(HEIGHT - 7), class_="middle")


def _drawn(line: Line, scale: _Scale) -> Iterator[str]:
    runs: list[list[Point]] = [[]]
    for point in line.points:
        if point.value > 0:
            runs[-1].append(point)
        else:  # zero has no place on a logarithmic scale
            runs.append([])
    inside = []
    for run in filter(None, runs):
        places = " ".join([f"{coordinate(scale.x(each.at))},{coordinate(scale.y(each.value))}" for each in run])
        inside.append(element("polyline", points=places))
        inside += [_dot(each, scale) for each in run]
    yield element("g", "".join(inside), class_=f"line l{line.colour}", data_line=line.colour)


def _dot(point: Point, scale: _Scale) -> str:
    told = f"{point.name}: {point.value:.4g}" + (" (NaN or infinity left out)" if point.odd else "")
    place = {"cx": coordinate(scale.x(point.at)), "cy": coordinate(scale.y(point.value))}
    inside = f"<title>{text(told, 240)}</title>"
    return element("circle", inside, **place, r=5 if point.odd else 2.6, class_="odd" if point.odd else None)
