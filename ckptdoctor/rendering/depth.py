"""Lays a comparison out by depth: a row for each kind of tensor in a layer, a column for each layer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, nan

from ckptdoctor.checkpoint.natural import naturally
from ckptdoctor.differences import Difference, Numbers, Pair, Verdict

_LAYERED = re.compile(r"(.*?(?:^|\.))(\d{1,9})\.(.+)", re.ASCII)
_FEWEST = 4  # layers that are worth a picture
_ROWS = 12  # kinds of tensors that have a row
FROM_ZERO = -1.0  # no magnitude: it sorts behind all others


@dataclass(frozen=True, slots=True)
class DepthMap:
    """``cells`` has a row for each of ``kinds`` and a column for each of ``layers``: the magnitude of the change there.

    None: there is no such tensor, or its values are not compared yet; below zero: A is all zeros there.
    """

    prefix: str
    layers: tuple[int, ...]
    kinds: tuple[str, ...]
    cells: tuple[tuple[float | None, ...], ...]
    differing: tuple[int, ...]
    complete: bool
    more: int = 0  # kinds that have no row

    @property
    def headline(self) -> str:
        """The layers that differ, in a few words; "" where none does, or not all is known."""
        if not self.differing or not self.complete:
            return ""
        if self.differing == self.layers:
            return f"all {len(self.layers)} layers differ"
        named = ", ".join(_runs(self.differing, self.layers))
        return f"only layer {named} differs" if len(self.differing) == 1 else f"only layers {named} differ"


def of_difference(found: Difference) -> DepthMap | None:
    """Return the layers of the tensors that both have; None where there are few layers."""
    entries = [(pair.name, magnitude(pair), not pair.alike) for pair in found.pairs]
    return depth_map([entries[place] for place in naturally([name for name, _, _ in entries])], found.compared)


def depth_map(entries: Sequence[tuple[str, float, bool]], complete: bool) -> DepthMap | None:
    """Return the layers of the network that has most of them; None where there are few.

    An entry is a tensor that both have: its name, the magnitude of its change, and whether it differs in more than its
    name.
    """
    found = [(match, far, differs) for name, far, differs in entries if (match := _LAYERED.fullmatch(name))]
    prefixes = Counter([match[1] for match, _, _ in found])
    if not prefixes:
        return None
    prefix = prefixes.most_common(1)[0][0]
    here = [(int(match[2]), match[3], far, differs) for match, far, differs in found if match[1] == prefix]
    layers = sorted({layer for layer, _, _, _ in here})
    if len(layers) < _FEWEST:
        return None
    kinds = Counter([kind for _, kind, _, _ in here])
    shown = sorted([kind for kind, _ in kinds.most_common(_ROWS)], key=list(kinds).index)
    places = {layer: place for place, layer in enumerate(layers)}
    cells: dict[str, list[float | None]] = {kind: [None] * len(layers) for kind in shown}
    for layer, kind, far, _ in here:
        if kind in cells and far == far:
            cells[kind][places[layer]] = far
    rows = tuple([tuple(cells[kind]) for kind in shown])
    differing = tuple(sorted({layer for layer, _, _, differs in here if differs}))
    return DepthMap(prefix, tuple(layers), tuple(shown), rows, differing, complete, len(kinds) - len(shown))


def magnitude(pair: Pair) -> float:
    """Return the distance of both sides: the norm of the difference by that of A.

    NaN where it is not known, infinite where one side alone has NaN or infinity, FROM_ZERO where A is all zeros, as
    biases are before any training: nothing can be said of how large such a change is.
    """
    values = pair.values
    if values is None or values.verdict in (Verdict.NOT_COMPARED, Verdict.OTHER_BYTES):
        return nan
    if values.numbers is None:
        return 0.0
    return far(values.numbers)


def far(numbers: Numbers) -> float:
    """Return the distance of both sides by the values that were compared."""
    relative = numbers.relative
    return inf if numbers.odd else FROM_ZERO if relative != relative else relative


def short_kinds(kinds: tuple[str, ...]) -> list[str]:
    """Return the kinds with as many of their last words as tell them apart: ``q_proj``, ``q_proj.bias``."""
    words = [kind.removesuffix(".weight").split(".") for kind in kinds]
    counts = Counter([tuple(each[at:]) for each in words for at in range(len(each))])
    ends = [[".".join(each[at:]) for at in range(len(each)) if counts[tuple(each[at:])] == 1] for each in words]
    return [unique[-1] if unique else ".".join(each) for unique, each in zip(ends, words, strict=True)]


def in_columns(row: tuple[float | None, ...], columns: int) -> list[float | None]:
    """Return the row in at most so many columns: of neighbours that share one, the largest change."""
    columns = min(columns, len(row))
    ends = [round(at * len(row) / columns) for at in range(columns + 1)]
    found: list[float | None] = []
    for begin, end in pairwise(ends):
        known = [each for each in row[begin:end] if each is not None]
        found.append(max(known) if known else None)
    return found


def _runs(numbers: tuple[int, ...], layers: tuple[int, ...]) -> list[str]:
    """Return the layers with neighbours as one: ``200–219``."""
    places = {layer: place for place, layer in enumerate(layers)}
    runs: list[list[int]] = []
    for number in numbers:
        if runs and places[number] == places[runs[-1][-1]] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    named = [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return named if len(named) <= _ROWS else [*named[:_ROWS], "…"]
