"""Brings names of two state dicts together where one can be renamed to the other, one to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Generic, TypeVar

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, Tensor
from ckptdoctor.checkpoint.expectation import Expected, Reference
from ckptdoctor.facts.alignment import Comparison, compare
from ckptdoctor.noun import noun

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
    """New names for the tensors ``left`` of A among those that only B has: by the renames that repairs would make.

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
    if found.uncovered or not found.cured.fits:
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
    """The name after all steps, and whether each step that changed it was sure."""
    name, sure = comparison.name_after_prefix(key), True
    for move in comparison.moves:
        new = move.change(name)
        if new != name:
            sure = sure and move.sure
        name = new
    return name, sure
