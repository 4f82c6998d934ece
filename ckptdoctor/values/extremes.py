"""The largest elements of a tensor are found, with the rows, columns and other slices that hold them. NaN comes first.

Of a large tensor whole rows are looked at, in runs that are spread evenly but not regularly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import isnan, nan, prod

import numpy as np

from ckptdoctor.casting.arrays import Array
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.values.regions import Picks, Runs
from ckptdoctor.values.statistics import Extreme, Extremes

MOST = 24  # elements, rows or columns that are named
_PIECE = 1 << 16  # elements of which the largest are looked for at a time


def largest(values: Array, sizes: Array, picks: Picks, work: Work) -> tuple[Extreme, ...]:
    """Return the elements with the largest absolute values."""
    flat = sizes.reshape(-1)
    places = np.empty(0, np.int64)
    for first in range(0, flat.size, _PIECE):
        work.go_on()
        piece = flat[first : first + _PIECE]
        if len(places) == MOST and piece.max() <= flat[places[-1]]:
            continue  # those that were found are as large; NaN is not
        every = np.concatenate([places, first + _first(piece, MOST)])
        places = every[_first(flat[every], MOST)]
    return _ordered([_extreme(values, sizes, int(place), picks) for place in places])


def along(values: Array, sizes: Array, picks: Picks, work: Work) -> tuple[Extremes, ...]:
    """Return for each dimension the indexes where the largest absolute values are, the worst first."""
    found = []
    for dim in range(values.ndim):
        work.go_on()
        found.append(_along(values, sizes, picks, dim))
    return tuple(found)


def _along(values: Array, sizes: Array, picks: Picks, dim: int) -> Extremes:
    if not sizes.size:
        return Extremes((), 0.0)
    others = [each for each in range(sizes.ndim) if each != dim]
    tops = sizes.max(tuple(others)) if others else sizes
    worst = []
    for place in _first(tops, MOST).tolist():
        inside = int(np.argmax(sizes.take(place, dim)))  # the first NaN, where there is one
        steps = list(_unravelled(inside, [sizes.shape[each] for each in others]))
        steps.insert(dim, place)
        worst.append(_at(values, sizes, tuple(steps), picks))
    return Extremes(_ordered(worst), _median(tops))


def _median(sizes: Array) -> float:
    """Return the lower of the two middle ones among those that are not NaN."""
    known = sizes[~np.isnan(sizes)]
    return float(np.partition(known, (len(known) - 1) // 2)[(len(known) - 1) // 2]) if len(known) else nan


def _first(sizes: Array, most: int) -> Array:
    """Return the places of the largest, after those of NaN; of equal ones those that come first."""
    keys = np.where(np.isnan(sizes), -np.inf, -sizes) if np.isnan(sizes.max(initial=0)) else -sizes
    if keys.size > most:
        edge = np.partition(keys, most - 1)[most - 1]
        below = np.flatnonzero(keys < edge)
        places = np.concatenate([below, np.flatnonzero(keys == edge)[: most - len(below)]])
    else:
        places = np.arange(keys.size)
    order: Array = places[np.lexsort((places, keys[places], ~np.isnan(sizes[places])))]
    return order


def _extreme(values: Array, sizes: Array, place: int, picks: Picks) -> Extreme:
    return _at(values, sizes, _unravelled(place, list(values.shape)), picks)


def _at(values: Array, sizes: Array, steps: tuple[int, ...], picks: Picks) -> Extreme:
    at = tuple([index_at(runs, step) for runs, step in zip(picks, steps, strict=True)])
    return Extreme(at, values[steps].item(), float(sizes[steps].item()))


def _ordered(found: list[Extreme]) -> tuple[Extreme, ...]:
    """Return the largest first, NaN before them; those that are alike in the order of their places."""
    return tuple(
        sorted(found, key=lambda each: (not isnan(each.size), 0.0 if isnan(each.size) else -each.size, each.at))
    )


def _unravelled(place: int, shape: list[int]) -> tuple[int, ...]:
    steps = []
    for size in reversed(shape):
        place, step = divmod(place, size)
        steps.append(step)
    return tuple(reversed(steps))


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
    """Return ``kept`` of ``size`` indexes in up to ``runs`` runs of equal length, one in each equal part.

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
    """Return the index at a position of the box."""
    ends = list(accumulate([len(run) for run in runs]))
    number = bisect_right(ends, position)
    return runs[number][position - (ends[number - 1] if number else 0)]
