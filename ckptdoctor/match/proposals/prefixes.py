"""Proposes a prefix that only some keys lack or have too much: a model with a head and one without (N410)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptdoctor.match.moves import Gap, Move, move
from ckptdoctor.noun import replace

_TRIED = 4
_DEPTH = 8  # tokens that a prefix can have


def propose(gap: Gap) -> Iterator[Move]:
    """Yield the prefixes that most loose keys need before them, or have before them."""
    loose, there = set(gap.loose), set(gap.open)
    for prefix in _most(gap.open, loose):
        found = move(
            "N410", f'add "{prefix}"', gap, [(key, prefix + key) for key in gap.loose if prefix + key in there]
        )
        if found is not None:
            yield replace(found, kin=False)
    for prefix in _most(gap.loose, there):
        pairs = [(key, key[len(prefix) :]) for key in gap.loose if key.startswith(prefix)]
        found = move("N410", f'strip "{prefix}"', gap, pairs)
        if found is not None:
            yield replace(found, kin=False)


def _most(longer: tuple[str, ...], shorter: set[str]) -> list[str]:
    """Return the prefixes behind which most keys of ``longer`` are one of ``shorter``."""
    votes: Counter[str] = Counter()
    for key in longer:
        cut, depth = key.find(".") + 1, 0
        while cut and depth < _DEPTH:
            depth += 1
            if key[cut:] in shorter:
                votes[key[:cut]] += 1
            cut = key.find(".", cut) + 1
    return [prefix for prefix, _ in votes.most_common(_TRIED)]
