"""Whose moments a saved optimizer keeps: the key of each of its parameters, where names or shapes leave no choice."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from ckptdoctor.facts.optimizers import SavedOptimizer, Slot, clashes
from ckptdoctor.facts.parameters import Candidate, ordered
from ckptdoctor.noun import noun
from ckptdoctor.wording import and_more

Shape = tuple[int, ...]


class NoRemapError(Exception):
    """The optimizer's parameters cannot be told apart, or not brought to the target; the text says why."""


@noun(eq=False)
class Owners:
    """``places``: the keys of the parameters, group by group; ``numbers``: key → the number of its state.

    ``complete``: every parameter of the model is there. ``in_order``: each group is in the order of the model.
    """

    places: tuple[tuple[str, ...], ...]
    numbers: dict[str, int]
    complete: bool
    in_order: bool


def owners(optimizer: SavedOptimizer, here: Sequence[Candidate]) -> Owners:
    """Whose states these are among the parameters ``here``. Raises NoRemapError, with the names that are in doubt."""
    slots = optimizer.slots
    numbers = [slot.number for slot in slots]
    if any(slot.flat for slot in slots):
        raise NoRemapError("it keeps what belongs to all parameters at once")
    if len(set(numbers)) != len(numbers):
        raise NoRemapError("it numbers two parameters alike")
    labels = optimizer.names
    keys = {each.key: each for each in here}
    if labels is not None and all(name in keys for name in labels) and len(set(labels)) == len(labels):
        states = _named(slots, [keys[name] for name in labels])
        return _owners(optimizer, labels, states, here)
    if any(slot.has_state and slot.shape is None for slot in slots):
        raise NoRemapError("it notes no names, and what it keeps tells no shapes")
    found = _placed(optimizer, here) if ordered(here) or len(here) == 1 else None
    names = _told_apart(slots, here) if found is None else found
    return _owners(optimizer, names, names, here)


def _owners(
    optimizer: SavedOptimizer, labels: Sequence[str], states: Sequence[str], here: Sequence[Candidate]
) -> Owners:
    rest = iter(labels)
    places = tuple([tuple([next(rest) for _ in group]) for group in optimizer.groups])
    rank = {each.key: number for number, each in enumerate(here)}
    return Owners(
        places,
        {name: slot.number for name, slot in zip(states, optimizer.slots, strict=True)},
        complete=len(labels) == len(here),
        in_order=all(rank[one] < rank[other] for names in places for one, other in pairwise(names)),
    )


def _named(slots: Sequence[Slot], wanted: Sequence[Candidate]) -> list[str]:
    """The names of the states: those that are noted, unless the shapes contradict them."""
    if not clashes(slots, wanted):
        return [each.key for each in wanted]
    return _told_apart(slots, wanted)


def _told_apart(slots: Sequence[Slot], here: Sequence[Candidate]) -> list[str]:
    """The key of each state by its shape, which one parameter only may have."""
    keys: dict[Shape, list[str]] = {}
    for each in here:
        keys.setdefault(each.shape, []).append(each.key)
    counts = Counter([slot.shape for slot in slots])
    doubtful = [
        slot for slot in slots if slot.shape is None or counts[slot.shape] != 1 or len(keys.get(slot.shape, ())) != 1
    ]
    if doubtful:
        raise _doubt([slot.shape for slot in doubtful], here)
    return [keys[slot.shape][0] for slot in slots if slot.shape is not None]


def _doubt(shapes: Sequence[Shape | None], here: Sequence[Candidate]) -> NoRemapError:
    wanted = set(shapes)
    names = [each.key for each in here if None in wanted or each.shape in wanted]
    if not names:
        return NoRemapError("what it keeps has shapes that no parameter has")
    return NoRemapError(f"shapes do not tell which of {and_more(names, 3)} its states belong to")


def _placed(optimizer: SavedOptimizer, here: Sequence[Candidate]) -> list[str] | None:
    """The keys, if each group comes in the order of the model in one way only; None: a group is in another order.

    Raises NoRemapError where there are several ways.
    """
    index = _Index(here)
    found: list[int | None] = []
    doubtful: list[Slot] = []
    for group in optimizer.groups:
        first, last = index.first(group), index.last(group)
        if first is None or last is None:
            return None
        found += [one if one == other else None for one, other in zip(first, last, strict=True)]
    taken = Counter(found)
    doubtful = [slot for slot, at in zip(optimizer.slots, found, strict=True) if at is None or taken[at] > 1]
    if doubtful:
        raise _doubt([slot.shape for slot in doubtful], here)
    return [here[at].key for at in found if at is not None]


class _Index:
    """Where parameters of each shape stand in the order of the model."""

    def __init__(self, here: Sequence[Candidate]) -> None:
        self._length = len(here)
        self._places: dict[Shape, list[int]] = {}
        for number, each in enumerate(here):
            self._places.setdefault(each.shape, []).append(number)

    def first(self, slots: Sequence[Slot]) -> list[int] | None:
        """The earliest places that the slots can have one after another; None: they cannot."""
        found, at = [], 0
        for slot in slots:
            if slot.shape is not None:
                places = self._places.get(slot.shape, [])
                index = bisect_left(places, at)
                at = places[index] if index < len(places) else self._length
            if at >= self._length:
                return None
            found.append(at)
            at += 1
        return found

    def last(self, slots: Sequence[Slot]) -> list[int] | None:
        """The latest places."""
        found, at = [], self._length - 1
        for slot in reversed(slots):
            if slot.shape is not None:
                places = self._places.get(slot.shape, [])
                index = bisect_right(places, at) - 1
                at = places[index] if index >= 0 else -1
            if at < 0:
                return None
            found.append(at)
            at -= 1
        return found[::-1]
