"""Which elements of a large tensor are looked at: whole rows, in runs that are spread evenly but not regularly."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import prod

from ckptdoctor.values.boxes import Picks, Runs

_KEPT = 64  # indexes of a dimension that are kept before the next one inside is thinned out


def sample(shape: Sequence[int], stride: Sequence[int], most: int, reads: int) -> Picks:
    """At most about ``most`` elements: every dimension whole where that does, else the outermost in memory thinned."""
    kept = list(shape)
    outermost = sorted(range(len(shape)), key=lambda dim: -stride[dim])
    for least in (_KEPT, 1):
        for dim in outermost:
            total = prod(kept)
            if total > most:
                kept[dim] = max(min(least, kept[dim]), kept[dim] * most // total)
    picks: list[Runs] = [()] * len(shape)
    for dim in outermost:
        picks[dim] = spread(shape[dim], kept[dim], max(1, reads))
        if kept[dim] < shape[dim]:
            reads //= len(picks[dim])
    return picks


def spread(size: int, kept: int, runs: int) -> Runs:
    """``kept`` of ``size`` indexes in at most ``runs`` runs of equal length, one in each equal part of the whole.

    Where in its part a run begins looks random, so that what repeats in the tensor (heads, experts) is not always met
    at the same place; it is the same every time.
    """
    if kept >= size:
        return (range(size),)
    length = -(-kept // runs)
    runs = max(1, kept // length)
    found = []
    for number in range(runs):
        first, stop = number * size // runs, (number + 1) * size // runs
        at = first + (number * 2654435761 >> 7) % max(1, stop - first - length + 1)
        found.append(range(at, at + length))
    return found


def index_at(runs: Runs, position: int) -> int:
    """The index that stands at a position of the box."""
    ends = list(accumulate([len(run) for run in runs]))
    number = bisect_right(ends, position)
    return runs[number][position - (ends[number - 1] if number else 0)]
