"""Pairs what belongs together in two checkpoints: state dicts by places, roles and keys, tensors by renames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, Tensor
from ckptdoctor.checkpoint.expectation import Expected, Reference
from ckptdoctor.checkpoint.weights import WEIGHTS, weights_among
from ckptdoctor.differences import Side
from ckptdoctor.facts import names
from ckptdoctor.match.comparing import compare
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.noun import field, noun, replace

_LOOKED_AT = 64  # state dicts of one role that are held against each other by their keys


@noun
class Counterparts:
    """Pairs of state dicts; ``main`` is the number of the pair whose keys need no path before them, -1 for none."""

    pairs: tuple[tuple[StateDict, StateDict], ...]
    main: int


def pair_up(a: Side, b: Side) -> Counterparts:
    """Return the state dicts of both sides that belong together, each in one pair at most."""
    mine, its = _below(a), _below(b)
    pairs = list(_in_place(a, mine, b, its))
    for role in Role:
        pairs += _by_keys(_left(mine, pairs, 0, (role,)), _left(its, pairs, 1, (role,)))
    if not any(one.role in WEIGHTS for one, _ in pairs):  # averages of weights, and weights
        pairs += _by_keys(_left(mine, pairs, 0, WEIGHTS), _left(its, pairs, 1, WEIGHTS))
    order = {id(each): number for number, each in enumerate(mine)}
    pairs.sort(key=lambda pair: order[id(pair[0])])
    return Counterparts(tuple(pairs), _main(pairs))


def _below(side: Side) -> list[StateDict]:
    """Return the state dicts in the compared part, but no dicts that only hold a tensor or two around others."""
    inside = [each for each in side.checkpoint.state_dicts if each.path[: len(side.root)] == side.root]
    weights = {id(each) for each in weights_among(inside)}
    return [each for each in inside if id(each) in weights or each.role not in WEIGHTS]


def _in_place(a: Side, mine: list[StateDict], b: Side, its: list[StateDict]) -> Iterator[tuple[StateDict, StateDict]]:
    there = {(each.path[len(b.root) :], each.role): each for each in its}
    for each in mine:
        other = there.get((each.path[len(a.root) :], each.role))
        if other is not None:
            yield each, other


def _left(
    every: list[StateDict], pairs: list[tuple[StateDict, StateDict]], index: int, roles: tuple[Role, ...]
) -> list[StateDict]:
    taken = {id(pair[index]) for pair in pairs}
    return [each for each in every if each.role in roles and id(each) not in taken]


def _by_keys(mine: list[StateDict], its: list[StateDict]) -> Iterator[tuple[StateDict, StateDict]]:
    """Yield the only one with the only one; of several, those with most keys in common, whatever their wrappers."""
    if len(mine) == 1 and len(its) == 1:
        yield mine[0], its[0]
        return
    here, there = _keys(mine[:_LOOKED_AT]), _keys(its[:_LOOKED_AT])
    shared = [(len(one & other), i, j) for i, one in enumerate(here) for j, other in enumerate(there)]
    used: tuple[set[int], set[int]] = set(), set()
    for count, i, j in sorted(shared, key=lambda each: (-each[0], each[1:])):
        if count and i not in used[0] and j not in used[1]:
            used[0].add(i)
            used[1].add(j)
            yield mine[i], its[j]


def _keys(state_dicts: Sequence[StateDict]) -> list[frozenset[str]]:
    return [frozenset(map(names.bare, each.keys)) for each in state_dicts]


def _main(pairs: Sequence[tuple[StateDict, StateDict]]) -> int:
    for role in WEIGHTS:
        for number, (one, _) in enumerate(pairs):
            if one.role is role:
                return number
    return -1


# ---- brings names of two state dicts together where one can be renamed to the other, one to one


Name = TypeVar("Name")


@noun
class Renaming(Generic[Name]):
    """Old name → new name; ``unsure`` are old ones whose new name is one of several that names and shapes allow.

    ``steps`` say in a few words how one comes to the other.
    """

    pairs: Mapping[Name, Name] = field(default_factory=dict)
    unsure: frozenset[Name] = frozenset()
    steps: tuple[str, ...] = ()


def renaming(
    a: Checkpoint, left: StateDict, b: Checkpoint, state_dict: StateDict, wanted: Sequence[Tensor]
) -> Renaming[str]:
    """Return new names for the tensors ``left`` of A among those that only B has, by the renames of repairs.

    Wrappers are taken off the keys of A; where that leads nowhere, off those of B.
    """
    there = replace(state_dict, tensors=tuple(wanted))
    found = _renamed(a, left, there)
    if len(found.pairs) == min(len(left.tensors), len(wanted)):
        return found
    back = _renamed(b, there, left)
    if len(back.pairs) <= len(found.pairs):
        return found
    turned = {new: old for old, new in back.pairs.items()}
    return Renaming(turned, frozenset([back.pairs[old] for old in back.unsure]), _of_b(back.steps))


def _of_b(steps: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([f"B: {step}" for step in steps])


def _renamed(checkpoint: Checkpoint, left: StateDict, there: StateDict) -> Renaming[str]:
    wanted = {tensor.key: Expected(tensor.shape, tensor.dtype) for tensor in there.tensors}
    alone = replace(left, others=(), metadata=None, role=Role.MODEL)
    reference = Reference("B", wanted, there.path)
    found = compare(replace(checkpoint, state_dicts=(alone,)), reference, left.path)
    if found.uncovered or not found.renamed.fits:
        return Renaming()
    pairs, unsure, twice = {}, set(), set()
    taken: dict[str, str] = {}
    for tensor in left.tensors:
        old = tensor.key
        new, sure = _final(found, old)
        if new not in wanted:
            continue
        if taken.setdefault(new, old) != old:
            twice.add(new)
        pairs[old] = new
        if not sure:
            unsure.add(old)
    pairs = {old: new for old, new in pairs.items() if new not in twice}
    steps = tuple([step.title for step in found.steps if step.code != "W301"])
    return Renaming(pairs, frozenset(unsure.intersection(pairs)), steps)


def _final(comparison: Comparison, key: str) -> tuple[str, bool]:
    """Return the name after all steps, and whether each step that changed it was sure."""
    name, sure = comparison.name_after_prefix(key), True
    for move in comparison.moves:
        new = move.change(name)
        if new != name:
            sure = sure and move.sure
        name = new
    return name, sure
