"""Some chunks of a tensor have been measured: this is what is known then, and knowledge of one tensor adds up."""

from __future__ import annotations

from math import isfinite, sqrt

from ckptdoctor.casting.arrays import Array
from ckptdoctor.noun import field, noun


@noun(frozen=False)
class Partial:
    """Counts, extremes and moments of the values seen so far; ``mean`` and ``spread`` are of the finite ones.

    ``spread`` is the sum of squared distances from the mean, ``squares`` that of squared values.
    """

    count: int = 0
    nan: int = 0
    positive_inf: int = 0
    negative_inf: int = 0
    zeros: int = 0
    finite: int = 0
    min: float = float("inf")
    max: float = float("-inf")
    mean: float = 0.0
    spread: float = 0.0
    squares: float = 0.0
    sample: list[Array] = field(default_factory=list)

    def add_moments(self, count: int, mean: float, spread: float, squares: float) -> None:
        """Count in ``count`` finite values with these moments (Chan, Golub and LeVeque, 1979)."""
        if not self.finite:
            self.finite, self.mean, self.spread, self.squares = count, mean, spread, squares
            return
        both = self.finite + count
        apart = mean - self.mean
        if not isfinite(apart):  # between means beyond 1e307
            self.mean, apart = self.mean * (self.finite / both) + mean * (count / both), 0.0
        self.spread += spread + apart * apart * self.finite * count / both
        self.mean += apart * count / both
        self.squares += squares
        self.finite = both

    def add(self, other: Partial) -> None:
        """Count in what another thread saw of the same tensor."""
        self.count += other.count
        self.nan += other.nan
        self.positive_inf += other.positive_inf
        self.negative_inf += other.negative_inf
        self.zeros += other.zeros
        self.min = min(self.min, other.min)
        self.max = max(self.max, other.max)
        self.sample += other.sample
        if other.finite:
            self.add_moments(other.finite, other.mean, other.spread, other.squares)

    @property
    def std(self) -> float:
        """The standard deviation of the finite values; none where they are all the same, however sums are rounded."""
        return sqrt(max(0.0, self.spread) / self.finite) if self.finite and self.min < self.max else 0.0
