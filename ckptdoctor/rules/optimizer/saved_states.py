"""Finds the options, states and step counters of optimizers and schedulers in a file, which training can rebuild."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from glob import escape
from itertools import islice

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Part, Role, Tensor, show_path
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.tree import mapping_at
from ckptdoctor.edits import Drop, Fix, Safety
from ckptdoctor.facts.optimizers import as_number
from ckptdoctor.noun import noun
from ckptdoctor.rules.kit import wording
from ckptdoctor.shell import word

_READ = 16  # optimizers, and schedulers, of one file that are looked at


@noun(eq=False)
class ParamGroup:
    """One parameter group of a saved optimizer: its options, and what is kept of each of its parameters."""

    options: dict[Part, Node]
    states: tuple[dict[Part, Node], ...]


@noun(eq=False)
class Optimizer:
    """The state of an optimizer at ``path``, group by group."""

    path: KeyPath
    groups: tuple[ParamGroup, ...]


@cached_by_identity
def optimizer_states(checkpoint: Checkpoint) -> tuple[Optimizer, ...]:
    """Return the optimizers of a file, those of FSDP, whose parameters have names, among them."""
    paths = [each.path for each in checkpoint.state_dicts if each.role is Role.OPTIMIZER]
    read = [_optimizer(path, mapping_at(checkpoint.tree, path)) for path in islice(paths, _READ)]
    return tuple([each for each in read if each is not None])


def _optimizer(path: KeyPath, node: Mapping | None) -> Optimizer | None:
    parts = dict(node.entries) if node is not None else {}
    groups, state = parts.get("param_groups"), parts.get("state")
    if not isinstance(groups, Items) or not isinstance(state, Mapping):
        return None
    states = {part: dict(each.entries) for part, each in state.entries if isinstance(each, Mapping)}
    return Optimizer(path, tuple([_group(each, states) for each in groups.items if isinstance(each, Mapping)]))


def _group(node: Mapping, states: dict[Part, dict[Part, Node]]) -> ParamGroup:
    options = dict(node.entries)
    params = options.get("params")
    names = params.items if isinstance(params, Items) else ()
    found = [states.get(each) for each in names if isinstance(each, (int, str))]
    return ParamGroup(options, tuple([each for each in found if each]))


@cached_by_identity
def schedulers(checkpoint: Checkpoint) -> tuple[tuple[KeyPath, dict[Part, Node]], ...]:
    """Return the schedulers of a file, each with what it keeps."""
    paths = [each.path for each in checkpoint.state_dicts if each.role is Role.SCHEDULER]
    found = [(path, mapping_at(checkpoint.tree, path)) for path in islice(paths, _READ)]
    return tuple([(path, dict(node.entries)) for path, node in found if node is not None])


def numbers_in(node: Node) -> tuple[float, ...] | None:
    """Return a list of numbers, or None for anything else."""
    found = [as_number(each) for each in node.items] if isinstance(node, Items) else [None]
    return None if any(each is None for each in found) else tuple([each for each in found if each is not None])


def steps(checkpoint: Checkpoint) -> Iterator[tuple[Optimizer, list[Tensor]]]:
    """Yield the step counters that are tensors, for each optimizer."""
    for optimizer in optimizer_states(checkpoint):
        found = [state.get("step") for group in optimizer.groups for state in group.states]
        tensors = [each for each in found if isinstance(each, Tensor)]
        if tensors:
            yield optimizer, tensors


# ---- the repair that leaves out states, which the training begins anew


_PATTERNS = 8  # --drop options on one command line


def forget_states(checkpoint: Checkpoint, optimizer: KeyPath, sick: Sequence[KeyPath] = ()) -> Fix | None:
    """Return the fix that leaves out the states of these parameters.

    They are those of all where none is named, or many are. Options and numbers stay.
    """
    place = (*optimizer, "state")
    node = mapping_at(checkpoint.tree, place)
    every = [(*place, part) for part, _ in node.entries] if node is not None else []
    if not every:
        return None
    if sick and len(sick) <= _PATTERNS:
        title = f"drop the states of {wording.plural(len(sick), 'parameter')}"
        return Fix(title, (Drop(tuple(sick)),), Safety.UNSAFE, " ".join(map(_drop, sick)))
    title = f"drop the states of {wording.all_of(len(every), 'parameter')}"
    return Fix(title, (Drop(tuple(every)),), Safety.UNSAFE, f"--drop {word(escape(show_path(place)) + '/*')}")


def forget(path: KeyPath, what: str) -> Fix | None:
    """Return the fix that leaves out what is at this path, or None where that is everything."""
    return Fix(f"drop {what}", (Drop((path,)),), Safety.UNSAFE, _drop(path)) if path else None


def _drop(path: KeyPath) -> str:
    return f"--drop {word(escape(show_path(path)))}"
