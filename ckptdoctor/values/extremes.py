"""The largest elements of a tensor, and the rows, columns and other slices that hold them. NaN comes first.

Of a large tensor whole rows are looked at, in runs that are spread evenly but not regularly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import isnan, prod
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.facts.values import Extreme, Extremes
from ckptdoctor.values.regions import Picks, Runs

if TYPE_CHECKING:
    import torch


MOST = 24  # elements, rows or columns that are named
_PIECE = 1 << 16  # elements of which the largest are looked for at a time


def largest(values: torch.Tensor, sizes: torch.Tensor, picks: Picks, nan: bool, work: Work) -> tuple[Extreme, ...]:
    """The elements with the largest absolute values."""
    import torch

    flat = sizes.reshape(-1)
    places = []
    for number, piece in enumerate(flat.split(_PIECE)):
        work.go_on()
        places.append(_first(piece, MOST, nan) + number * _PIECE)
    if not places:
        return ()
    every = torch.cat(places)
    chosen = every[_first(flat[every], MOST, nan)]
    return _ordered([_extreme(values, sizes, int(place), picks) for place in chosen.tolist()])


def along(values: torch.Tensor, sizes: torch.Tensor, picks: Picks, nan: bool, work: Work) -> tuple[Extremes, ...]:
    """For each dimension the indexes where the largest absolute values are, the worst first."""
    found = []
    for dim in range(values.dim()):
        work.go_on()
        found.append(_along(values, sizes, picks, dim, nan))
    return tuple(found)


def _along(values: torch.Tensor, sizes: torch.Tensor, picks: Picks, dim: int, nan: bool) -> Extremes:
    if not sizes.numel():
        return Extremes((), 0.0)
    others = [each for each in range(sizes.dim()) if each != dim]
    tops = sizes.amax(others) if others else sizes
    worst = []
    for place in _first(tops, MOST, nan).tolist():
        inside = int(_first(sizes.select(dim, place).reshape(-1), 1, nan).item())
        steps = list(_unravelled(inside, [sizes.shape[each] for each in others]))
        steps.insert(dim, place)
        worst.append(_at(values, sizes, tuple(steps), picks))
    return Extremes(_ordered(worst), tops.nanmedian().item())


def _first(sizes: torch.Tensor, most: int, nan: bool) -> torch.Tensor:
    """The places of the largest, those of NaN before them, where there is any."""
    import torch

    many = min(most, sizes.numel())
    if not nan:
        return torch.topk(sizes, many).indices
    unknown = torch.isnan(sizes)
    first = unknown.nonzero().view(-1)[:many]
    rest = torch.topk(torch.where(unknown, -1.0, sizes), many).indices
    return torch.cat([first, rest[~unknown[rest]]])[:many]


def _extreme(values: torch.Tensor, sizes: torch.Tensor, place: int, picks: Picks) -> Extreme:
    return _at(values, sizes, _unravelled(place, list(values.shape)), picks)


def _at(values: torch.Tensor, sizes: torch.Tensor, steps: tuple[int, ...], picks: Picks) -> Extreme:
    at = tuple([index_at(runs, step) for runs, step in zip(picks, steps, strict=True)])
    return Extreme(at, values[steps].item(), float(sizes[steps].item()))


def _ordered(found: list[Extreme]) -> tuple[Extreme, ...]:
    """The largest first, NaN before them; those that are alike in the order of their places."""
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
