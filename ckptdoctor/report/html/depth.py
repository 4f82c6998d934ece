"""Norms by depth: the tensors that each block of a stack has, from the first block to the last."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from math import ceil, floor, log10

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.facts.values import TensorValues
from ckptdoctor.noun import noun
from ckptdoctor.report.html.examined import Examined
from ckptdoctor.report.html.markup import coordinate, element, lines, name, section, text

_FEWEST = 3  # blocks that make a stack
_STACKS = 4  # that are drawn
_LINES = 8  # in one drawing
_DIGITS = re.compile(r"\d+")
# what blocks of a stage are called: their number counts, and that of the stage before it
_INNER = frozenset({"blocks", "layers", "block", "layer", "resnets", "attentions", "transformer_blocks"})

_Measured = tuple[str, Tensor, TensorValues]
_Kind = tuple[str, dict[str, _Measured]]


@noun(frozen=False)
class _Stack:
    """Blocks by the numbers in their names, and for each kind of tensor those of the blocks."""

    blocks: dict[str, None] = field(default_factory=dict)
    kinds: dict[str, dict[str, _Measured]] = field(default_factory=dict)
    nbytes: int = 0


def depth(examined: Examined) -> str:
    """The section; "" where no model has a stack of blocks, or values were not read."""
    if examined.values is None or examined.checkpoint is None:
        return ""
    drawn = [part for each in _stacks(examined) for part in _figures(*each)]
    about = (
        "Each point is one tensor, each line one kind of tensor through the blocks of a stack. The scale is "
        "logarithmic; a line that leaves its neighbours, or a gap where all values are zero, is worth a look."
    )
    return section("depth", "Norms by depth", f'<div class="charts">{lines(drawn)}</div>' if drawn else "", about)


def _stacks(examined: Examined) -> Iterator[tuple[str, _Stack]]:
    """The stacks of the first set of weights, the largest first."""
    assert examined.checkpoint is not None
    sets = weights_among(examined.checkpoint.state_dicts)
    found: dict[str, _Stack] = {}
    for tensor in sets[0].tensors if sets else ():
        values = examined.measured(tensor)
        split = block_of(tensor.key)
        if values is not None and split is not None and values.count and tensor.dtype.kind in ("float", "complex"):
            block, kind = split
            stack = found.setdefault(_DIGITS.sub("#", block), _Stack())
            stack.blocks[block] = None
            stack.kinds.setdefault(kind, {})[block] = (tensor.key, tensor, values)
            stack.nbytes += tensor.nbytes
    largest = sorted(found.items(), key=lambda item: -item[1].nbytes)
    yield from [each for each in largest if len(each[1].blocks) >= _FEWEST][:_STACKS]


def block_of(key: str) -> tuple[str, str] | None:
    """The block that a key belongs to and the rest: ``h.0`` and ``attn.c_attn.weight``; None outside of stacks."""
    tokens = key.split(".", 64)
    places = [at for at, token in enumerate(tokens[:-1]) if token.isascii() and token.isdigit()]
    if not places:
        return None
    at = places[0]
    while len(tokens) > at + 3 and tokens[at + 1] in _INNER and at + 2 in places:
        at += 2
    return ".".join(tokens[: at + 1]), ".".join(tokens[at + 1 :])


def _figures(template: str, stack: _Stack) -> Iterator[str]:
    blocks = sorted(stack.blocks, key=lambda block: [int(each) for each in _DIGITS.findall(block)])
    places = {block: at for at, block in enumerate(blocks)}
    labels = _labels(blocks)
    matrices: list[_Kind] = []
    vectors: list[_Kind] = []
    for kind, tensors in stack.kinds.items():
        if len(tensors) >= _FEWEST:
            flat = all(len(tensor.shape) < 2 for _, tensor, _ in tensors.values())
            (vectors if flat else matrices).append((kind, tensors))
    for told, chosen in (("matrices", matrices), ("vectors", vectors)):
        chosen = sorted(chosen, key=lambda each: -sum([tensor.numel for _, tensor, _ in each[1].values()]))
        for measure, title in (("norm", "norm"), ("std", "standard deviation")):
            drawn = [
                Line(kind, _points(tensors, places, measure), number)
                for number, (kind, tensors) in enumerate(chosen[:_LINES])
            ]
            drawing = line_chart(drawn, labels, f"{title} of {told} by block")
            if drawing:
                yield _figure(f"{title} of {told}", template, drawing, drawn, len(chosen) - _LINES)


def _points(tensors: dict[str, _Measured], places: dict[str, int], measure: str) -> tuple[Point, ...]:
    found = [
        Point(places[block], getattr(values, measure), key, bool(values.nan or values.infinite))
        for block, (key, _, values) in tensors.items()
    ]
    return tuple(sorted(found, key=lambda point: point.at))


def _labels(blocks: Sequence[str]) -> list[str]:
    """The numbers of the blocks: ``0``, ``1``; ``1.0``, ``1.1`` where there are several in a name."""
    return [".".join(_DIGITS.findall(block)) for block in blocks]


def _figure(title: str, template: str, drawing: str, drawn: Sequence[Line], more: int) -> str:
    seen = [line for line in drawn if any(point.value > 0 for point in line.points)]
    zero = [line.name for line in drawn if line not in seen]
    key = [
        f'<span data-line="{line.colour}"><i class="l{line.colour}"></i>{name(line.name, 60)}</span>' for line in seen
    ]
    if zero:
        key.append(f'<span class="soft">zero throughout: {name(", ".join(zero), 160)}</span>')
    if more > 0:
        key.append(f'<span class="soft">{more} more in the table</span>')
    head = f'<figcaption><h3>{text(title.capitalize())}</h3><span class="soft">{name(template, 60)}</span></figcaption>'
    return f'<figure class="lines">{head}{drawing}<p class="legend">{"".join(key)}</p></figure>'


# ---- lines over the depth of a model, on a logarithmic scale, as a drawing that needs no script


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
