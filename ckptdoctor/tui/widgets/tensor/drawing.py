"""Writes statistics and histograms as text; the pane next to the tree and the full screen draw them alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import pairwise

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from ckptdoctor.look.inspector import Look, Spectrum
from ckptdoctor.rendering.numbers import amount, count
from ckptdoctor.rendering.value_numbers import number, share
from ckptdoctor.tui.models.values import axis, bars, by_size, filling
from ckptdoctor.tui.widgets.looks import LookOf


class Scale(Enum):
    """The way in which a histogram is drawn: what grows with the logarithm."""

    LINEAR = "linear"
    COUNTS = "logarithmic counts"
    SIZES = "by powers of two"

    @property
    def next(self) -> Scale:
        """The one that comes after this one."""
        every = list(Scale)
        return every[(every.index(self) + 1) % len(every)]


def sampled(look: Look) -> str:
    """Return ``sampled 1 of 64``; "" where all values were looked at."""
    return f"sampled 1 of {count(round(look.total / max(1, look.looked)))}" if look.sampled else ""


def statistics(look: Look, width: int, look_of: LookOf) -> Text:
    """Return the numbers, each with its name, in as many lines as they need."""
    return _in_lines(_figures(look), width, look_of)


def _in_lines(figures: Iterable[tuple[str, str, str]], width: int, look_of: LookOf) -> Text:
    text, taken = Text(), 0
    for name, said, style in figures:
        piece = f"{name} {said}".strip()
        if taken and taken + 2 + cell_len(piece) > width:
            text.append("\n")
            taken = 0
        elif taken:
            text.append("  ")
            taken += 2
        if name:
            text.append(f"{name} ", look_of("dim"))
        text.append(said, look_of(style) if style else Style())
        taken += cell_len(piece)
    return text.append("\n")


def _figures(look: Look) -> Iterator[tuple[str, str, str]]:
    """Name, number and look of each figure."""
    values = look.values
    if not look.total:
        yield "", "no elements", "dim"
        return
    about = "≈" if look.sampled else ""
    if look.sampled:
        yield "", f"{sampled(look)}: {amount(look.looked)} of {amount(look.total)} elements", "warning"
    if values.nan:
        yield "NaN", f"{about}{share(values.nan, values.count)} ({count(values.nan)})", "error"
    if values.infinite:
        signs = f"+{count(values.positive_inf)} -{count(values.negative_inf)}"
        yield "inf", signs, "error"
    if values.finite:
        yield "min", number(values.min), ""
        yield "max", number(values.max), ""
        yield "mean", f"{about}{number(values.mean)}", ""
        yield "std", f"{about}{number(values.std)}", ""
        zeros = share(values.zeros, values.count)
        yield "zeros", about + zeros if values.zeros else "0", "warning" if values.zeros == values.count > 1 else ""
        if not look.sampled:
            yield "norm", number(values.norm), ""
    if look.floating and not values.nan:
        yield "NaN", "none in the sample" if look.sampled else "0", ""
    if values.fits:
        yield "fits", ", ".join(values.fits), ""
    if values.duplicated_rows:
        yield "repeated rows", count(values.duplicated_rows), ""


def histogram(look: Look, scale: Scale, width: int, height: int, look_of: LookOf) -> Text:
    """Return bars, with the range that they cover below them."""
    text = Text(no_wrap=True)
    if not look.values.finite or width < 8 or height < 1:
        return text
    if look.values.min == look.values.max:
        every = "Every value" if look.values.finite == look.values.count else "Every finite value"
        return text.append(f"{every} is {number(look.values.min)}.\n", look_of("dim"))
    if scale is Scale.SIZES:
        counts, least = by_size(look.sizes, look.values.zeros)
        drawn = filling(counts, width)
        ends = _powers(look, least, len(drawn))
    else:
        drawn = filling(look.bins, width)
        ends = _ends(number(look.values.min), number(look.values.max), len(drawn))
    line = "─" * len(drawn) if scale is Scale.SIZES else axis(look.values.min, look.values.max, len(drawn))
    for each in bars(drawn, height, scale is not Scale.LINEAR):
        text.append(each + "\n", look_of("accent"))
    return text.append(f"{line}\n{ends}\n", look_of("dim"))


def spectrum(seen: Spectrum, width: int, height: int, look_of: LookOf) -> Text:
    """Return singular values as bars, the largest first, and how many of them matter."""
    values = seen.values
    figures = (
        ("largest", number(values[0]), ""),
        ("smallest", number(values[-1]), ""),
        ("rank", f"{count(seen.rank)} of {count(len(values))}", ""),
        ("effective rank", f"{seen.effective:.1f}", ""),
    )
    text = _in_lines(figures, width, look_of)
    text.no_wrap = True
    if not seen.effective:
        return text.append("Every value is zero.\n", look_of("dim"))
    room = height - text.plain.count("\n") - 3
    cells = min(len(values), width)
    wide = max(1, width // len(values))
    starts = [at * len(values) // cells for at in range(cells + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(starts)]
    text.append("\n")
    for each in bars([mean for mean in means for _ in range(wide)], max(1, room), False):
        text.append(each + "\n", look_of("accent"))
    drawn = wide * cells
    return text.append(f"{'─' * drawn}\n{_ends('1', count(len(values)), drawn)}\n", look_of("dim"))


def _ends(left: str, right: str, width: int, middle: str = "") -> str:
    room = max(1, width - len(left) - len(right))
    return f"{left}{middle.center(room)}{right}"


def _powers(look: Look, least: int, width: int) -> str:
    """Return the ends of an axis of exponents, and the place of the smallest values."""
    high = look.sizes[-1][0] if look.sizes else 0
    left = f"-2^{high}" if any(below for _, below, _ in look.sizes) else "0"
    return _ends(left, f"2^{high}", width, f"2^{least - 1}" if left != "0" else "")
