"""A line chart as SVG over round numbers: what is drawn, and how. Colours and line styles are the page's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from ckptdoctor.rendering.html.markup import coordinate, element, lines, text


def ticks(low: float, high: float, about: int = 5, finest: float = 0.0) -> list[float]:
    """Return about so many round numbers, evenly spaced, from at most ``low`` to at least ``high``; always two or more.

    They are multiples of 1, 2 or 5 times a power of ten, and not closer together than ``finest``.
    """
    # neighbours must be different numbers, also far from zero
    span = max(high - low, finest, abs(low) * 1e-9, abs(high) * 1e-9, 1e-9)
    power = 10.0 ** floor(log10(span / about))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit * about >= span * 0.999)
    step = max(step, finest)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, max(last, first + 1) + 1)]


_WIDTH, _HEIGHT = 480, 264
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 30
_FEW = 40
"""So many epochs have a visible dot each; beyond that a dot shows only under the pointer."""
_MOST = 500
"""So many epochs can be pointed at, evenly chosen: more would only be slower."""


@dataclass(frozen=True)
class Series:
    """One line: its name, the class that styles it, and (epoch, value) pairs in the order of the epochs."""

    name: str
    style: str
    points: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Chart:
    """Lines over epochs. ``text`` writes a value out; ``least`` is a value that the axis always reaches down to."""

    title: str
    series: Sequence[Series]
    text: Callable[[float], str]
    tick: Callable[[float], str]
    least: float | None = None
    resumed: Sequence[int] = ()
    """After which epochs a run went on; marked by a line."""


def svg(chart: Chart, name: str) -> str:
    """Return the chart as an ``<svg>`` element; ``name`` is an id that no other element of the page has."""
    scale = _Scale.of(chart)
    inside = [
        element("title", text(chart.title), id=f"{name}-title"),
        element("desc", text(_description(chart)), id=f"{name}-about"),
        *_grid(chart, scale),
        *_resumes(chart, scale),
        *(_line(series, scale) for series in chart.series if series.points),
        *(dot for series in chart.series for dot in _dots(series, chart, scale)),
    ]
    box = f"0 0 {_WIDTH} {_HEIGHT}"
    return element("svg", lines(inside), viewBox=box, role="img", aria_labelledby=f"{name}-title {name}-about")


@dataclass(frozen=True)
class _Scale:
    """Places in the picture for epochs and values."""

    first: int
    last: int
    values: Sequence[float]
    """The marks of the value axis, from its lowest to its highest end."""

    @classmethod
    def of(cls, chart: Chart) -> _Scale:
        points = [point for series in chart.series for point in series.points]
        epochs = [epoch for epoch, _ in points] or [1]
        values = [value for _, value in points] or [0.0, 1.0]
        low = min(values) if chart.least is None else min(*values, chart.least)
        return cls(min(epochs), max(*epochs, min(epochs) + 1), ticks(low, max(values)))

    def x(self, epoch: float) -> float:
        return _LEFT + (epoch - self.first) / (self.last - self.first) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self.values[0], self.values[-1]
        return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    def epochs(self) -> list[int]:
        """Return the marks of the epoch axis."""
        marks = ticks(self.first, self.last, 6, finest=1)
        return [round(mark) for mark in marks if self.first <= mark <= self.last]


def _description(chart: Chart) -> str:
    """Return a description for those who do not see the picture: how each line ends."""
    ends = [
        f"{series.name} {chart.text(series.points[-1][1])} after epoch {series.points[-1][0]}"
        for series in chart.series
        if series.points
    ]
    return "; ".join(ends) or "no data yet"


def _grid(chart: Chart, scale: _Scale) -> Iterator[str]:
    bottom = _HEIGHT - _BOTTOM
    for value in scale.values:
        y = scale.y(value)
        yield _stroke("grid", _LEFT, y, _WIDTH - _RIGHT, y)
        yield element("text", text(chart.tick(value)), class_="value", x=_LEFT - 8, y=coordinate(y + 5))
    yield element("text", "epoch", class_="value", x=_LEFT - 8, y=bottom + 21)
    for epoch in scale.epochs():
        x = scale.x(epoch)
        yield _stroke("tick", x, bottom, x, bottom + 4)
        yield element("text", str(epoch), class_="epoch", x=coordinate(x), y=bottom + 21)


def _resumes(chart: Chart, scale: _Scale) -> Iterator[str]:
    for epoch in chart.resumed:
        if scale.first <= epoch <= scale.last:
            x = scale.x(epoch)
            yield _stroke("resumed", x, _TOP, x, _HEIGHT - _BOTTOM, f"<title>resumed after epoch {epoch}</title>")


def _stroke(kind: str, x1: float, y1: float, x2: float, y2: float, inside: str = "") -> str:
    ends = {"x1": coordinate(x1), "y1": coordinate(y1), "x2": coordinate(x2), "y2": coordinate(y2)}
    return element("line", inside, class_=kind, **ends)


def _line(series: Series, scale: _Scale) -> str:
    points = " ".join(f"{coordinate(scale.x(epoch))},{coordinate(scale.y(value))}" for epoch, value in series.points)
    return element("polyline", class_=f"line {series.style}", points=points)


def _dots(series: Series, chart: Chart, scale: _Scale) -> Iterator[str]:
    """Yield one dot for each epoch that can be pointed at, with its value as a tooltip."""
    count = len(series.points)
    kind = "dot" if count <= _FEW else "dot hidden"
    for epoch, value in series.points[:: -(-count // _MOST) or 1]:
        place = {"cx": coordinate(scale.x(epoch)), "cy": coordinate(scale.y(value)), "r": 4}
        about = element("title", text(f"epoch {epoch}: {series.name} {chart.text(value)}"))
        yield element("circle", about, class_=f"{kind} {series.style}", **place)
