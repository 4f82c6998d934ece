"""Lays a comparison out by depth: a row for each kind of tensor in a layer, a column for each layer."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from ckptdoctor.tui.models.comparison import ComparedEntries

_LAYERED = re.compile(r"(.*?(?:^|\.))(\d{1,9})\.(.+)", re.ASCII)
_FEWEST = 4  # layers that are worth a picture
_ROWS = 12  # kinds of tensors that have a row
_LARGE = 100_000  # entries beyond which no picture is made


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

    @property
    def headline(self) -> str:
        """The layers that differ, in a few words; "" where none does, or not all is known."""
        if not self.differing or not self.complete:
            return ""
        if self.differing == self.layers:
            return f"all {len(self.layers)} layers differ"
        return f"only layers {', '.join(_runs(self.differing, self.layers))} differ"


def depth_map(comparison: ComparedEntries) -> DepthMap | None:
    """The layers of the network that has most of them; None where there are few."""
    if len(comparison) > _LARGE:
        return None
    both = [entry for entry in comparison.order if comparison.pair(entry) is not None]
    found = [(entry, match) for entry in both if (match := _LAYERED.fullmatch(comparison.name(entry)))]
    prefixes = Counter([match[1] for _, match in found])
    if not prefixes:
        return None
    prefix = prefixes.most_common(1)[0][0]
    here = [(entry, int(match[2]), match[3]) for entry, match in found if match[1] == prefix]
    layers = sorted({layer for _, layer, _ in here})
    if len(layers) < _FEWEST:
        return None
    kinds = Counter([kind for _, _, kind in here])
    shown = sorted([kind for kind, _ in kinds.most_common(_ROWS)], key=list(kinds).index)
    places = {layer: place for place, layer in enumerate(layers)}
    cells: dict[str, list[float | None]] = {kind: [None] * len(layers) for kind in shown}
    for entry, layer, kind in here:
        far = comparison.magnitudes[entry]
        if kind in cells and far == far:
            cells[kind][places[layer]] = far
    rows = tuple([tuple(cells[kind]) for kind in shown])
    differing = tuple(sorted({layer for entry, layer, _ in here if comparison.differs(entry)}))
    return DepthMap(prefix, tuple(layers), tuple(shown), rows, differing, comparison.found.compared)


def short_kinds(kinds: tuple[str, ...]) -> list[str]:
    """The kinds with as many of their last words as tell them apart: ``q_proj``, ``input_layernorm``."""
    bare = [kind.removesuffix(".weight") for kind in kinds]
    ends = [each.rpartition(".")[2] for each in bare]
    counts = Counter(ends)
    return [end if counts[end] == 1 else whole for end, whole in zip(ends, bare, strict=True)]


def in_columns(row: tuple[float | None, ...], columns: int) -> list[float | None]:
    """The row in at most so many columns: of neighbours that share one, the largest change."""
    columns = min(columns, len(row))
    ends = [round(at * len(row) / columns) for at in range(columns + 1)]
    found: list[float | None] = []
    for begin, end in pairwise(ends):
        known = [each for each in row[begin:end] if each is not None]
        found.append(max(known) if known else None)
    return found


def _runs(numbers: tuple[int, ...], layers: tuple[int, ...]) -> list[str]:
    """``200–219``: neighbours among the layers as one."""
    places = {layer: place for place, layer in enumerate(layers)}
    runs: list[list[int]] = []
    for number in numbers:
        if runs and places[number] == places[runs[-1][-1]] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    named = [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return named if len(named) <= _ROWS else [*named[:_ROWS], "…"]
