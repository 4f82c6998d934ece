"""Numbered layers that are counted from another number: ``layers.0`` here is ``layers.1`` there (N424)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ckptdoctor.facts.moves import Gap, Move, move

_DEPTH = 32  # tokens of a key that are looked at
_DIGITS = 9  # longer numbers count nothing


@dataclass
class _Numbered:
    """The keys below one container, by number: (number, key, what follows the number)."""

    keys: list[tuple[int, str, str]] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)


def propose(gap: Gap) -> Iterator[Move]:
    """For each container with loose keys: the shift between the first numbers, and that between the last ones."""
    containers = _containers(gap.loose)
    here, there = _numbered(gap.here, containers), _numbered(gap.wanted, containers)
    for container in containers:
        if not there[container].numbers:
            continue
        ours, theirs = here[container].numbers, there[container].numbers
        for shift in sorted({min(theirs) - min(ours), max(theirs) - max(ours)} - {0}, key=abs):
            pairs = [(key, f"{container}{number + shift}{rest}") for number, key, rest in here[container].keys]
            found = move("N424", f"{container}{{n}} → {container}{{n{shift:+d}}}", gap, pairs)
            if found is not None:
                yield found


def _containers(keys: Iterable[str]) -> list[str]:
    """What stands before a number in some key, each once, shortest first."""
    found = {container for key in keys for container, _, _ in _split(key)}
    return sorted(found, key=lambda container: (container.count("."), container))


def _numbered(keys: Iterable[str], containers: list[str]) -> dict[str, _Numbered]:
    wanted = set(containers)
    found: dict[str, _Numbered] = defaultdict(_Numbered)
    for key in keys:
        for container, number, rest in _split(key):
            if container in wanted:
                found[container].keys.append((number, key, rest))
                found[container].numbers.add(number)
    return found


def _split(key: str) -> Iterator[tuple[str, int, str]]:
    """(what stands before, the number, what follows) for each token of a key that is a number."""
    start, depth = 0, 0
    while depth < _DEPTH:
        end = key.find(".", start)
        token = key[start:] if end < 0 else key[start:end]
        if token.isdecimal() and token.isascii() and len(token) <= _DIGITS:
            yield key[:start], int(token), key[start + len(token) :]
        if end < 0:
            return
        start, depth = end + 1, depth + 1
