"""Draws charts of values: norms through the blocks of a stack, sizes by dtype, and histograms."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil, floor, log10

from ckptdoctor.checkpoint import Tensor, show_path
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.noun import field, noun
from ckptdoctor.rendering.html.examined import Examined
from ckptdoctor.rendering.html.markup import coordinate, element, lines, name, section, text
from ckptdoctor.rendering.numbers import amount, plural
from ckptdoctor.values.statistics import Histogram, TensorValues
from ckptdoctor.wording import beyond, percent

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
    """Return the section; "" where no model has a stack of blocks, or values were not read."""
    if examined.values is None or examined.checkpoint is None:
        return ""
    drawn = [part for each in _stacks(examined) for part in _figures(*each)]
    about = (
        "Each point is one tensor, each line one kind of tensor through the blocks of a stack. The scale is "
        "logarithmic; a line that leaves its neighbours, or a gap where all values are zero, is worth a look."
    )
    return section("depth", "Norms by depth", f'<div class="charts">{lines(drawn)}</div>' if drawn else "", about)


def _stacks(examined: Examined) -> Iterator[tuple[str, _Stack]]:
    """Yield the stacks of the first set of weights, the largest first."""
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
    """Return the block of a key and the rest: ``h.0`` and ``attn.c_attn.weight``; None outside of stacks."""
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
                ChartLine(kind, _points(tensors, places, measure), number)
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
    """Return the numbers of the blocks: ``0``, ``1``; ``1.0``, ``1.1`` where there are several in a name."""
    return [".".join(_DIGITS.findall(block)) for block in blocks]


def _figure(title: str, template: str, drawing: str, drawn: Sequence[ChartLine], more: int) -> str:
    seen = [line for line in drawn if any(point.value > 0 for point in line.points)]
    zero = [line.name for line in drawn if line not in seen]
    key = [
        f'<span data-line="{line.colour}"><i class="l{line.colour}"></i>{name(line.name, 60)}</span>' for line in seen
    ]
    if zero:
        key.append(f'<span class="soft">zero throughout: {name(", ".join(zero), 160)}</span>')
    rest = beyond(more, before="", after=" in the table", spelt=str)
    key += [f'<span class="soft">{rest}</span>'] if rest else []
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
class ChartLine:
    """One kind of tensor through all blocks. ``colour`` is its number among those of the style sheet."""

    name: str
    points: tuple[Point, ...]
    colour: int = 0


def line_chart(lines: Sequence[ChartLine], blocks: Sequence[str], label: str) -> str:
    """Return the drawing; "" where no number is above zero."""
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


def _drawn(line: ChartLine, scale: _Scale) -> Iterator[str]:
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


_WIDTH, _HEIGHT, _FOOT = 560.0, 170.0, 24.0
_NARROW, _LOW = 200.0, 56.0
_NOTE = 150.0  # room that a note needs on its left
_GALLERY = 24  # tensors with a picture of their own
_DTYPES = 6
_LOWEST, _HIGHEST = -60, 40  # powers of two that are drawn; what lies outside is added to the last bar
# the powers of two where a narrower type loses values: the smallest normal number of float16, and its largest
_LIMITS = ((-13, "float16 loses digits below"), (16, "float16 overflows"))


@noun(frozen=False)
class _Sizes:
    """The values of all tensors of a dtype by powers of two, and what has no power."""

    powers: Counter[int] = field(default_factory=Counter)
    tensors: int = 0
    values: int = 0
    zeros: int = 0
    nan: int = 0
    infinite: int = 0

    def add(self, values: TensorValues) -> None:
        self.tensors += 1
        self.values += values.count
        self.zeros += values.zeros
        self.nan += values.nan
        self.infinite += values.infinite
        exponents = values.histogram.exponents if values.histogram is not None else ()
        seen = sum([count for _, count in exponents])
        for power, count in exponents:
            share = count * (values.finite - values.zeros) // seen if seen else 0
            self.powers[min(max(power, _LOWEST), _HIGHEST)] += max(share, 1)


def distributions(examined: Examined) -> str:
    """Return the section; "" where values were not read."""
    if examined.values is None:
        return ""
    sizes: dict[str, _Sizes] = {}
    for number, tensor in enumerate(examined.tensors):
        values = examined.measured(tensor)
        if values is not None and values.count and number not in examined.tied:
            sizes.setdefault(tensor.dtype.name, _Sizes()).add(values)
    ranked = sorted(sizes.items(), key=lambda item: -item[1].values)[:_DTYPES]
    figures = [_sizes_figure(dtype, found) for dtype, found in ranked]
    inside = lines([f'<div class="charts">{lines(figures)}</div>' if figures else "", _gallery(examined)])
    about = "How large values are, as powers of two; the sign does not count. Large tensors are sampled evenly."
    return section("values", "Distributions", inside, about)


def _sizes_figure(dtype: str, found: _Sizes) -> str:
    told = [f"{amount(found.values)} {'value' if found.values == 1 else 'values'} in {plural(found.tensors, 'tensor')}"]
    told += [f"{percent(found.zeros, found.values, _rounded)} zeros"] if found.zeros else []
    odd = [f"{count:,} {what}" for count, what in ((found.nan, "NaN"), (found.infinite, "infinite")) if count]
    warned = f' <b class="error">{text(", ".join(odd))}</b>' if odd else ""
    head = f'<figcaption><h3>{text(dtype)}</h3><span class="soft">{text(", ".join(told))}</span>{warned}</figcaption>'
    return f"<figure>{head}{''.join(_powers(dtype, found))}</figure>"


def _rounded(share: float) -> str:
    return f"{max(share, 0.01):.2g}" if share < 99.5 else "99"


def _powers(dtype: str, found: _Sizes) -> Iterator[str]:
    if not found.powers:
        yield '<p class="soft">All values are zero, or none is finite.</p>'
        return
    low, high = min(found.powers), max(found.powers)
    low, high = min(low, high - 11), high + 1
    top, wide = max(found.powers.values()), _WIDTH / (high - low + 1)
    inside = list(_limits(low, high, wide)) if dtype in ("float32", "float64", "bfloat16") else []
    whole = sum(found.powers.values())
    for power, count in sorted(found.powers.items()):
        tall = max(1.0, (_HEIGHT - _FOOT - 8) * count / top)
        label = f"2^{power - 1} to 2^{power}: {percent(count, whole, _rounded)} of the values that are not zero"
        place = {"x": coordinate((power - low) * wide + 0.5), "y": coordinate(_HEIGHT - _FOOT - tall)}
        size = {"width": coordinate(max(wide - 1, 0.6)), "height": coordinate(tall)}
        inside.append(element("rect", f"<title>{text(label)}</title>", **place, **size, rx=1.5, class_="bin"))
    inside.append(element("line", x1=0, x2=_WIDTH, y1=_HEIGHT - _FOOT, y2=_HEIGHT - _FOOT, class_="axis"))
    step = max(1, round((high - low) / 8))
    for power in range(low + step // 2, high, step):
        place = {"x": coordinate((power - low + 1) * wide), "y": coordinate(_HEIGHT - 7)}
        raised = f'2<tspan dy="-5" class="up">{power}</tspan>'.replace(">-", ">−")
        inside.append(element("text", raised, **place, class_="middle"))
    box = f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}"
    yield element("svg", "".join(inside), viewBox=box, role="img", aria_label=f"Sizes of {dtype} values")


def _limits(low: int, high: int, wide: float) -> Iterator[str]:
    """Yield lines where float16 ends."""
    for power, told in _LIMITS:
        if low < power <= high:
            x = (power - low) * wide
            yield element("line", x1=coordinate(x), x2=coordinate(x), y1=0, y2=_HEIGHT - _FOOT, class_="limit")
            left = power < 0 and x > _NOTE
            place = {"x": coordinate(x - 6 if left else x + 6), "y": 12, "class_": "end note" if left else "note"}
            yield element("text", text(told), **place)


def _gallery(examined: Examined) -> str:
    """Small histograms: of tensors whose names differ in numbers alone, the largest."""
    sets = weights_among(examined.checkpoint.state_dicts) if examined.checkpoint is not None else []
    tied = {examined.tensors[number].path for number in examined.tied}
    every = [tensor for tensor in (sets[0].tensors if sets else examined.tensors) if tensor.path not in tied]
    pictures: dict[str, str] = {}
    for tensor in sorted(every, key=lambda tensor: -tensor.numel):
        kind = _DIGITS.sub("#", tensor.key)
        values = examined.measured(tensor) if kind not in pictures else None
        histogram = values.histogram if values is not None else None
        if values is not None and histogram is not None and len(histogram.counts) > 1:
            pictures[kind] = _picture(tensor, values, histogram)
        if len(pictures) == _GALLERY:
            break
    if not pictures:
        return ""
    return f'<h3>The largest tensor of each kind</h3><div class="gallery">{lines(pictures.values())}</div>'


def _picture(tensor: Tensor, values: TensorValues, histogram: Histogram) -> str:
    bars, top = [], max(histogram.counts) or 1
    wide = _NARROW / len(histogram.counts)
    for number, count in enumerate(histogram.counts):
        tall = _LOW * count / top
        if tall:
            place = {"x": coordinate(number * wide), "y": coordinate(_LOW - max(tall, 0.8))}
            size = {"width": coordinate(wide - 0.6), "height": coordinate(max(tall, 0.8))}
            bars.append(element("rect", **place, **size, class_="bin"))
    if values.min < 0 < values.max:
        x = coordinate(_NARROW * -values.min / (values.max - values.min))
        bars.insert(0, element("line", x1=x, x2=x, y1=0, y2=_LOW, class_="zero"))
    key = show_path(tensor.path)
    label = f"values of {key} from {values.min:.3g} to {values.max:.3g}"
    drawing = element(
        "svg", "".join(bars), viewBox=f"0 0 {_NARROW:.0f} {_LOW:.0f}", preserveAspectRatio="none", role="img",
        aria_label=label[:300],
    )  # fmt: skip
    ends = f"<span>{values.min:.3g}</span><span>σ {values.std:.3g}</span><span>{values.max:.3g}</span>"
    title = f"<figcaption>{name(tensor.key, 90)}</figcaption>"
    return f'<figure class="small">{title}{drawing}<p class="ends">{ends}</p></figure>'
