"""Pairs state dicts of two checkpoints by their places, roles and keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Role, StateDict
from ckptdoctor.checkpoint.weights import WEIGHTS, weights_among
from ckptdoctor.differences import Side
from ckptdoctor.facts import names
from ckptdoctor.noun import noun

_LOOKED_AT = 64  # state dicts of one role that are held against each other by their keys


@noun
class Counterparts:
    """Pairs of state dicts; ``main`` is the number of the pair whose keys need no path before them, -1 for none."""

    pairs: tuple[tuple[StateDict, StateDict], ...]
    main: int


def pair_up(a: Side, b: Side) -> Counterparts:
    """The state dicts of both sides that belong together, each in one pair at most."""
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
    """Those in the part that is compared, without dicts that only hold a tensor or two around others."""
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
    """The only one with the only one; of several those with most keys in common, whatever wrappers put before them."""
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
