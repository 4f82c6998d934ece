"""Optimizers and schedulers in a file keep options, states and step counters, group by group."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Part, Role, Tensor
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.tree import mapping_at
from ckptdoctor.facts.optimizers import as_number
from ckptdoctor.noun import noun

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
    """The optimizers of a file, those of FSDP, whose parameters have names, among them."""
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
    """The schedulers of a file, each with what it keeps."""
    paths = [each.path for each in checkpoint.state_dicts if each.role is Role.SCHEDULER]
    found = [(path, mapping_at(checkpoint.tree, path)) for path in islice(paths, _READ)]
    return tuple([(path, dict(node.entries)) for path, node in found if node is not None])


def numbers_in(node: Node) -> tuple[float, ...] | None:
    """A list of numbers; None for anything else."""
    found = [as_number(each) for each in node.items] if isinstance(node, Items) else [None]
    return None if any(each is None for each in found) else tuple([each for each in found if each is not None])


def steps(checkpoint: Checkpoint) -> Iterator[tuple[Optimizer, list[Tensor]]]:
    """The step counters that are tensors, for each optimizer."""
    for optimizer in optimizer_states(checkpoint):
        found = [state.get("step") for group in optimizer.groups for state in group.states]
        tensors = [each for each in found if isinstance(each, Tensor)]
        if tensors:
            yield optimizer, tensors
