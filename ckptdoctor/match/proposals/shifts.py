"""Proposes to count layers from another number: ``layers.0`` here is ``layers.1`` there, and ``fc2`` ``fc1``.

Or with other gaps: ``0, 2, 4`` of a list in which an activation follows each layer is ``0, 1, 2`` without (N424).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise

from ckptdoctor.match.moves import Gap, Move, move
from ckptdoctor.noun import field, noun

_DEPTH = 32  # numbers of a key that are looked at
_EVEN = 3  # members of a list that are evenly apart, at least
_MANY = 1_000_000  # numbers of all keys: of more only whole tokens are looked at
# w1, w2 and w3 are no list: each of them has a part of its own
_NUMBER = re.compile(r"(?<![0-9])(?<![.]w)(?<!wi_)[0-9]{1,9}(?![0-9])")
_TOKEN = re.compile(r"(?<![^.])[0-9]{1,9}(?![^.])")


@noun(frozen=False)
class _Numbered:
    """The keys below one container, by number: (number, key, what follows the number)."""

    keys: list[tuple[int, str, str]] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)


def propose(gap: Gap) -> Iterator[Move]:
    """Propose for each container with loose keys the shift of its first numbers, and that of its last ones."""
    numbers = sum([len(_NUMBER.findall(key)) for each in (gap.here, gap.wanted) for key in each])
    number = _NUMBER if numbers <= _MANY else _TOKEN
    containers = _containers(gap.loose, number)
    here, there = _numbered(gap.here, containers, number), _numbered(gap.wanted, containers, number)
    for container in containers:
        if not there[container].numbers:
            continue
        ours, theirs = here[container].numbers, there[container].numbers
        for shift in sorted({min(theirs) - min(ours), max(theirs) - max(ours)} - {0}, key=abs):
            pairs = [(key, f"{container}{number + shift}{rest}") for number, key, rest in here[container].keys]
            found = move("N424", f"{container}{{n}} → {container}{{n{shift:+d}}}", gap, pairs)
            if found is not None:
                yield found
        spread = _spread(ours, theirs)
        if spread:
            pairs = [(key, f"{container}{spread[number]}{rest}") for number, key, rest in here[container].keys]
            apart = f"{container}{min(ours)}, {sorted(ours)[1]}, … → {container}{min(theirs)}, {sorted(theirs)[1]}, …"
            found = move("N424", apart, gap, pairs)
            if found is not None:
                yield found


def _spread(ours: set[int], theirs: set[int]) -> dict[int, int]:
    """Return the new number of each, where both are as many, each evenly apart, and not equally far; {} else."""
    one, other = sorted(ours), sorted(theirs)
    if len(one) != len(other) or len(one) < _EVEN:
        return {}
    steps = [{b - a for a, b in pairwise(numbers)} for numbers in (one, other)]
    return dict(zip(one, other, strict=True)) if all(len(each) == 1 for each in steps) and steps[0] != steps[1] else {}


def _containers(keys: Iterable[str], number: re.Pattern[str]) -> list[str]:
    """Return what precedes a number in some key, each once, shortest first."""
    found = {container for key in keys for container, _, _ in _split(key, number)}
    return sorted(found, key=lambda container: (container.count("."), container))


def _numbered(keys: Iterable[str], containers: list[str], digits: re.Pattern[str]) -> dict[str, _Numbered]:
    wanted = set(containers)
    found: dict[str, _Numbered] = defaultdict(_Numbered)
    for key in keys:
        for container, number, rest in _split(key, digits):
            if container in wanted:
                found[container].keys.append((number, key, rest))
                found[container].numbers.add(number)
    return found


def _split(key: str, number: re.Pattern[str]) -> Iterator[tuple[str, int, str]]:
    """Yield (what precedes it, the number, what follows it) for each number of a key."""
    for found in islice(number.finditer(key), _DEPTH):
        yield key[: found.start()], int(found[0]), key[found.end() :]
