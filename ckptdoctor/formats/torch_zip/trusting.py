"""Which records of a broken archive are what their names say.

A checksum vouches for the bytes of a record, not for its name: one flipped bit makes "data/5" of "data/4". But torch
writes storages in an order that is known, so that a name out of its turn gives itself away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ckptdoctor.formats.torch_zip.record import Record


class Found(NamedTuple):
    """A record, and whether it stands right behind the one before it."""

    record: Record
    adjoins: bool


def trusted(found: Sequence[Found], used: Sequence[str]) -> list[Record]:
    """The records whose names are not in doubt. ``used`` are the names of the storages in the order of their first use.

    A name that is there twice is in doubt wherever it stands. Where the others follow an order, so is one that does
    not: right behind a record its successor must follow, behind a damaged place some later one.
    """
    counts = Counter(each.record.name for each in found)
    places = {name: place for place, name in enumerate(_order([each.record.name for each in found], used))}
    kept = []
    last = -1
    follows = False  # whether the record before is a storage whose name is right
    for each in found:
        place = places.get(each.record.name)
        in_turn = place is not None and (place == last + 1 if follows and each.adjoins else place > last)
        if place is not None and in_turn:
            last = place
        follows = in_turn
        if counts[each.record.name] == 1 and (in_turn or place is None):
            kept.append(each.record)
    return kept


def _order(names: Sequence[str], used: Sequence[str]) -> Sequence[str]:
    """The order in which the storages were written: by first use, or by name as torch did once; () where by neither."""
    storages = set(used)
    there = [name for name in names if name in storages]
    best = max((used, sorted(used)), key=lambda order: _in_turn(there, order))
    return best if _in_turn(there, best) * 2 >= len(there) - 1 else ()


def _in_turn(names: Sequence[str], order: Sequence[str]) -> int:
    """How many of the names are followed by the one that follows in the order."""
    places = {name: place for place, name in enumerate(order)}
    return sum(places[other] == places[one] + 1 for one, other in pairwise(names))
