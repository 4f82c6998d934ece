"""How values are distributed: their sizes by dtype, and the histograms of the largest tensors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import field

from ckptdoctor.checkpoint import Tensor, show_path
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.facts.values import Histogram, TensorValues
from ckptdoctor.noun import noun
from ckptdoctor.report.html.examined import Examined
from ckptdoctor.report.html.markup import coordinate, element, lines, name, section, text
from ckptdoctor.report.numbers import amount, plural
from ckptdoctor.wording import percent

_WIDTH, _HEIGHT, _FOOT = 560.0, 170.0, 24.0
_NARROW, _LOW = 200.0, 56.0
_DIGITS = re.compile(r"\d+")
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
    """The section; "" where values were not read."""
    if examined.values is None:
        return ""
    sizes: dict[str, _Sizes] = {}
    for number, tensor in enumerate(examined.tensors):
        values = examined.measured(tensor)
        if values is not None and values.count and number not in examined.tied:
            sizes.setdefault(tensor.dtype.name, _Sizes()).add(values)
    ranked = sorted(sizes.items(), key=lambda item: -item[1].values)[:_DTYPES]
    figures = [_figure(dtype, found) for dtype, found in ranked]
    inside = lines([f'<div class="charts">{lines(figures)}</div>' if figures else "", _gallery(examined)])
    about = "How large values are, as powers of two; the sign does not count. Large tensors are sampled evenly."
    return section("values", "Distributions", inside, about)


def _figure(dtype: str, found: _Sizes) -> str:
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
    """Where float16 ends."""
    for power, told in _LIMITS:
        if low < power <= high:
            x = (power - low) * wide
            yield element("line", x1=coordinate(x), x2=coordinate(x), y1=0, y2=_HEIGHT - _FOOT, class_="limit")
            left = power < 0
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
