"""Works out the order and groups in which a target gives parameters to an optimizer, and how a saved one gets there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.facts import names
from ckptdoctor.facts.optimizers import SavedOptimizer, Slot, clashes, saved_optimizers
from ckptdoctor.facts.weight_sets import Candidate, candidates, expected_candidates, only_model, ordered
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.noun import noun
from ckptdoctor.wording import and_more


@noun(eq=False)
class Target:
    """What the optimizer's parameters should be: ``order`` is that of all of them, by the names of the target.

    ``groups`` are those of an optimizer that the target has; None: nobody knows. ``frozen`` are not trained.
    ``finals``: key here (without wrappers) → name in the target. ``here`` are the parameters of the file.
    """

    source: str
    order: tuple[str, ...]
    shapes: Mapping[str, Shape]
    here: tuple[Candidate, ...]
    finals: Mapping[str, str]
    groups: tuple[tuple[str, ...], ...] | None = None
    frozen: frozenset[str] = frozenset()
    alone: bool = True


@noun(eq=False)
class Remap:
    """The groups that the optimizer gets: (number of the group whose options it keeps, names of its parameters).

    ``numbers``: name → the number that its state has now; names without one are ``new``. ``lost`` are names of states
    that the target has no parameter for. ``labels``: name → what the file calls it. ``sure``: no guess is in it.
    """

    groups: tuple[tuple[int, tuple[str, ...]], ...]
    numbers: Mapping[str, int]
    new: tuple[str, ...]
    lost: tuple[str, ...]
    labels: Mapping[str, str]
    sure: bool

    def regroups(self, optimizer: SavedOptimizer) -> bool:
        """Return whether ``load_state_dict`` of the target's optimizer would refuse the groups as they are."""
        return [len(group) for group in optimizer.groups] != [len(group) for _, group in self.groups]


def own_target(checkpoint: Checkpoint, model: StateDict) -> Target:
    """Return the order of the weights next to the optimizer. Raises NoRemapError where they do not have one."""
    here = tuple(candidates(model))
    order = tuple([each.key for each in here])
    if not ordered(here) and len(here) > 1:
        raise NoRemapError("the weights are sorted by name, so their order shows nothing")
    alone = len(saved_optimizers(checkpoint)) == 1
    return Target(
        "the model", order, {each.key: each.shape for each in here}, here, {key: key for key in order}, alone=alone
    )


def target_of(comparison: Comparison, model: StateDict, optimizer: SavedOptimizer) -> Target:
    """Return what the reference says. Raises NoRemapError where it says nothing of an order."""
    reference = comparison.reference
    first = {key: keys[0] for keys in reference.ties for key in keys}
    finals = {names.bare(key): comparison.final_name(key) for key in names.keys_of(model)}
    finals = {key: first.get(name, name) for key, name in finals.items()}
    there = expected_candidates(reference.tensors)
    wanted = list(
        dict.fromkeys([first.get(each, each) for each in reference.parameters or [each.key for each in there]])
    )
    groups = _groups_there(comparison, optimizer, first)
    if groups is None and not reference.parameters and len(there) > 1 and not ordered(there):
        raise NoRemapError(f"{reference.source} is sorted by name, so its order shows nothing")
    known = set(wanted)
    here = [
        each for each in candidates(model) if finals[each.key] in known or finals[each.key] not in reference.tensors
    ]
    return Target(
        reference.source,
        tuple(wanted),
        {key: reference.tensors[key].shape for key in wanted if key in reference.tensors},
        tuple(here),
        finals,
        groups,
        frozenset([first.get(key, key) for key in reference.frozen]),
        len(saved_optimizers(comparison.checkpoint)) == 1,
    )


def _groups_there(
    comparison: Comparison, optimizer: SavedOptimizer, first: Mapping[str, str]
) -> tuple[tuple[str, ...], ...] | None:
    """Return the groups of the optimizer that the target's file has, by name.

    It is None where it has none that is known.
    """
    beside = comparison.reference.beside
    model = only_model(beside) if beside is not None else None
    if beside is None or model is None:
        return None
    saved = saved_optimizers(beside)
    same = [each for each in saved if each.path == optimizer.path] or (saved if len(saved) == 1 else [])
    if not same:
        return None
    whole = {names.bare(key): key for key in names.keys_of(model)}
    try:
        found = owners(same[0], candidates(model))
    except NoRemapError:
        return None
    return tuple([tuple([first.get(whole[key], whole[key]) for key in group]) for group in found.places])


def wanted_remap(comparison: Comparison, model: StateDict, optimizer: SavedOptimizer) -> Remap | None:
    """Return how the optimizer gets to the target, where that is beyond doubt.

    It is None where it is there, or in doubt.
    """
    try:
        found = remap(optimizer, target_of(comparison, model, optimizer))
    except NoRemapError:
        return None
    return found if found is not None and found.sure else None


def remap(optimizer: SavedOptimizer, target: Target) -> Remap | None:
    """Return how the optimizer gets the target's order, or None where it has it.

    Raises NoRemapError where nobody can tell.
    """
    found = owners(optimizer, target.here)
    places = [[target.finals[key] for key in group] for group in found.places]
    numbers = {target.finals[key]: number for key, number in found.numbers.items()}
    if target.groups is None:
        groups = _ordered(optimizer, found, places, target)
    else:
        groups = _regrouped(optimizer, places, target.groups)
    kept = [name for _, names_in in groups for name in names_in]
    _require_shapes(optimizer, numbers, target)
    states = {slot.number for slot in optimizer.slots if slot.has_state}
    present = set(kept)
    made = Remap(
        tuple(groups),
        numbers,
        tuple([name for name in kept if name not in numbers]),
        tuple([name for name, number in numbers.items() if name not in present and number in states]),
        {target.finals[key]: key for key in target.finals},
        sure=found.in_order or target.groups is not None,
    )
    return None if _is_there(optimizer, made) else made


def _is_there(optimizer: SavedOptimizer, made: Remap) -> bool:
    now = [[slot.number for slot in group] for group in optimizer.groups]
    return now == [[made.numbers.get(name, -1) for name in group] for _, group in made.groups]


def _ordered(
    optimizer: SavedOptimizer, found: Owners, places: Sequence[Sequence[str]], target: Target
) -> list[tuple[int, tuple[str, ...]]]:
    """Return the same groups, each in the order of the target; one over everything stays one over everything."""
    order = target.order
    if len(places) == 1 and target.alone and (found.complete or target.frozen):
        idle = not all(slot.has_state for slot in optimizer.slots)
        if target.frozen and found.complete and not idle:
            raise NoRemapError(
                f"nothing shows whether the parameters that {target.source} does not train are passed to the optimizer"
            )
        every = order if found.complete else tuple([name for name in order if name not in target.frozen])
        return [(0, every)]
    here = set(target.finals.values())
    new = [name for name in order if name not in here]
    if new:
        raise NoRemapError(f"nothing shows the group of {new[0]}, which is not in the file")
    rank = {name: number for number, name in enumerate(order)}
    return [
        (number, tuple(sorted([name for name in group if name in rank], key=rank.__getitem__)))
        for number, group in enumerate(places)
    ]


def _regrouped(
    optimizer: SavedOptimizer, places: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]
) -> list[tuple[int, tuple[str, ...]]]:
    """Return the groups of the target; each keeps the options that its parameters have."""
    home = {name: number for number, group in enumerate(places) for name in group}
    made = []
    for number, group in enumerate(wanted):
        homes = sorted({home[name] for name in group if name in home})
        if not homes:
            raise NoRemapError(f"group {number} of the target has only parameters that the file does not have")
        if any(optimizer.options[each] != optimizer.options[homes[0]] for each in homes):
            raise NoRemapError(f"group {number} of the target joins parameters that have other options here")
        made.append((homes[0], tuple(group)))
    return made


def _require_shapes(optimizer: SavedOptimizer, numbers: Mapping[str, int], target: Target) -> None:
    shapes = {slot.number: slot.shape for slot in optimizer.slots}
    for name, number in numbers.items():
        shape = shapes[number]
        if shape is not None and target.shapes.get(name, shape) != shape:
            raise NoRemapError(f"{name} has different shapes in {target.source} and in the state here")


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
    """Return whose states these are among the parameters ``here``.

    Raises NoRemapError, with the names that are in doubt.
    """
    slots = optimizer.slots
    numbers = [slot.number for slot in slots]
    if any(slot.flat for slot in slots):
        raise NoRemapError("it has state for all parameters at once")
    if len(set(numbers)) != len(numbers):
        raise NoRemapError("it gives two parameters the same number")
    labels = optimizer.names
    keys = {each.key: each for each in here}
    if labels is not None and all(name in keys for name in labels) and len(set(labels)) == len(labels):
        states = _named(slots, [keys[name] for name in labels])
        return _owners(optimizer, labels, states, here)
    if any(slot.has_state and slot.shape is None for slot in slots):
        raise NoRemapError("it records no names, and its state shows no shapes")
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
    """Return the names of the states: those that are noted, unless the shapes contradict them."""
    if not clashes(slots, wanted):
        return [each.key for each in wanted]
    return _told_apart(slots, wanted)


def _told_apart(slots: Sequence[Slot], here: Sequence[Candidate]) -> list[str]:
    """Return the key of each state by its shape, which one parameter only may have."""
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
        return NoRemapError("its state has shapes that no parameter has")
    return NoRemapError(f"shapes do not show which of {and_more(names, 3)} its states belong to")


def _placed(optimizer: SavedOptimizer, here: Sequence[Candidate]) -> list[str] | None:
    """Return the keys, if each group comes in the order of the model in one way only, else None.

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
    """Where parameters of each shape are in the order of the model."""

    def __init__(self, here: Sequence[Candidate]) -> None:
        self._length = len(here)
        self._places: dict[Shape, list[int]] = {}
        for number, each in enumerate(here):
            self._places.setdefault(each.shape, []).append(number)

    def first(self, slots: Sequence[Slot]) -> list[int] | None:
        """Return the earliest places that the slots can have one after another; None: they cannot."""
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
        """Return the latest places."""
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
