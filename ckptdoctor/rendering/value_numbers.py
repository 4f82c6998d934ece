"""Writes statistics as people read them, and those of several tensors together."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, sqrt

from ckptdoctor.noun import field, noun
from ckptdoctor.values.statistics import Histogram, TensorValues
from ckptdoctor.wording import percent

BLOCKS = "▁▂▃▄▅▆▇█"
_SIGNS = ".:-=+*#@"  # where blocks cannot be shown


def number(value: float) -> str:
    """Return ``-0.0132``, ``1.2e-7``, ``512``: three digits, or a whole number as it is."""
    if abs(value) < 1e6 and value == int(value):
        return str(int(value))
    text = f"{value:.3g}"
    head, e, exponent = text.partition("e")
    return f"{head}e{int(exponent)}" if e else text


def share(part: int, whole: int) -> str:
    """Return ``0``, ``<0.1 %``, ``12 %``, ``100 %``: the last only where it is all."""
    return percent(part, whole, _rounded, none="0", empty="0")


def _rounded(share: float) -> str:
    if share < 10:
        return "<0.1" if share < 0.1 else f"{share:.1f}"
    return ">99" if share > 99 else f"{share:.0f}"


def sparkline(histogram: Histogram | None, columns: int, plain: bool = False) -> str:
    """Return a histogram in one line, its bins put together to at most ``columns``; what occurs at all has a mark."""
    if histogram is None or len(histogram.counts) < 2:
        return ""
    step = -(-len(histogram.counts) // columns)
    counts = [sum(histogram.counts[at : at + step]) for at in range(0, len(histogram.counts), step)]
    signs, top = _SIGNS if plain else BLOCKS, max(counts) or 1
    return "".join([signs[-(-count * len(signs) // top) - 1] if count else " " for count in counts])


@noun(frozen=False)
class Total:
    """Several tensors as if they were one; tied ones count once."""

    tensors: int = 0
    count: int = 0
    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    finite: int = 0
    min: float = inf
    max: float = -inf
    mean: float = 0.0
    spread: float = 0.0
    squares: float = 0.0
    seen: set[int] = field(default_factory=set, repr=False)

    def add(self, values: TensorValues) -> None:
        """Count in one tensor."""
        if id(values) in self.seen:
            return
        self.seen.add(id(values))
        self.tensors += 1
        self.count, self.zeros = self.count + values.count, self.zeros + values.zeros
        self.nan, self.infinite = self.nan + values.nan, self.infinite + values.infinite
        if not values.finite:
            return
        both, apart = self.finite + values.finite, values.mean - self.mean
        share = values.finite / both
        self.spread += values.std * values.std * values.finite
        if self.finite:  # else the square, which may be infinite, counts for nothing
            self.spread += apart * apart * (self.finite * share)
        self.mean = (
            self.mean * (1 - share) + values.mean * share
        )  # which are never too large, as their difference may be
        self.squares += values.norm * values.norm  # not **, which raises an error instead of being infinite
        self.finite = both
        self.min, self.max = min(self.min, values.min), max(self.max, values.max)

    @property
    def std(self) -> float:
        """That of all values."""
        return sqrt(self.spread / self.finite) if self.finite else 0.0

    @property
    def norm(self) -> float:
        """That of all values as one vector."""
        return sqrt(self.squares)


def totals(values: Iterable[tuple[str, TensorValues]]) -> dict[str, Total]:
    """Return the figures of all values with the same name, by that name."""
    found: dict[str, Total] = {}
    for name, each in values:
        found.setdefault(name, Total()).add(each)
    return found
