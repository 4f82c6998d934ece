"""Puts names into the order of the numbers in them: layer 2 before layer 10, and nothing else moves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NUMBER = re.compile(r"(\d+)", re.ASCII)
_DIGITS = 18  # of a number in a name


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of files sorted by name, but those that differ in numbers alone by these."""
    listed = sorted(names)
    return [listed[place] for place in naturally(listed)]


def naturally(names: Sequence[str]) -> list[int]:
    """Return the places of the names in that order: those that differ in numbers alone take each other's places."""
    alike: dict[tuple[str, ...], list[tuple[list[int], int]]] = {}
    for place, name in enumerate(names):
        words = _NUMBER.split(name)
        if len(words) > 1:
            alike.setdefault(tuple(words[::2]), []).append(([int(word[:_DIGITS]) for word in words[1::2]], place))
    order = list(range(len(names)))
    for numbered in alike.values():
        places = sorted([place for _, place in numbered])
        for to, (_, place) in zip(places, sorted(numbered), strict=True):
            order[to] = place
    return order
