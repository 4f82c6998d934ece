"""What a training left in a file beside its weights: options of optimizers, schedulers, counters, scalers, settings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Part, Role, Tensor
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.tree import mapping_at
from ckptdoctor.noun import noun

LIGHTNING = "pytorch-lightning_version"
HPARAMS = ("hyper_parameters", "datamodule_hyper_parameters")
_READ = 16  # optimizers, and schedulers, of one file that are looked at
_SCALER = frozenset({"scale", "growth_factor", "backoff_factor", "growth_interval"})
_BEYOND = 10**18  # what no counter reaches
_NEAR = 256  # entries of a dict that are looked at for what lies in it
# what DeepSpeed and Megatron call things in files whose optimizer lies in others
_ELSEWHERE = frozenset({"ds_config", "ds_version", "dp_world_size", "checkpoint_version", "tp_world_size"})
_OPTIMIZERS = frozenset(
    {"optimizer", "optimizers", "optim", "opt", "optimizer_state", "optimizer_states", "optimizer_state_dict"}
)


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


def number(node: Node) -> float | None:
    """A plain number; None for anything else, a tensor among them, and for integers beyond all measure."""
    if isinstance(node, float):
        return node
    return float(node) if isinstance(node, int) and is_count(node) else None


def is_count(node: Node) -> bool:
    """Whether it is an integer that can be a counter."""
    return type(node) is int and abs(node) < _BEYOND


def numbers(node: Node) -> tuple[float, ...] | None:
    """A list of numbers; None for anything else."""
    found = [number(each) for each in node.items] if isinstance(node, Items) else [None]
    return None if any(each is None for each in found) else tuple([each for each in found if each is not None])


def top(checkpoint: Checkpoint) -> dict[str, Node]:
    """The entries at the top of the file; none where there are as many as tensors have."""
    tree = checkpoint.tree
    if not isinstance(tree, Mapping) or len(tree.entries) > _NEAR:
        return {}
    return {part: node for part, node in tree.entries if isinstance(part, str)}


def kept_elsewhere(checkpoint: Checkpoint) -> bool:
    """Whether the program that wrote the file keeps its optimizers in other files."""
    return not _ELSEWHERE.isdisjoint(top(checkpoint))


def without_state(checkpoint: Checkpoint) -> Iterator[str]:
    """Keys at the top of the file that are called after an optimizer, and have nothing."""
    for name, node in top(checkpoint).items():
        empty = node is None or (isinstance(node, (Mapping, Items)) and not _length(node))
        if empty and name.lower() in _OPTIMIZERS:
            yield name


def _length(node: Mapping | Items) -> int:
    return len(node.entries) if isinstance(node, Mapping) else len(node.items)


def scalers(checkpoint: Checkpoint) -> Iterator[tuple[KeyPath, float]]:
    """The states of ``GradScaler`` near the top of the file, each with its scale."""
    for name, node in top(checkpoint).items():
        below: list[tuple[KeyPath, Node]] = [((name,), node)]
        if isinstance(node, Mapping) and len(node.entries) <= _NEAR:
            below += [((name, part), child) for part, child in node.entries]
        for path, each in below:
            if isinstance(each, Mapping) and len(each.entries) <= _NEAR:
                parts = dict(each.entries)
                scale = number(parts.get("scale"))
                if parts.keys() >= _SCALER and scale is not None:
                    yield path, scale


def bytes_of(checkpoint: Checkpoint, *roles: Role) -> int:
    """The bytes of the storages that the state dicts of these roles use, each storage once."""
    found: dict[str, int] = {}
    for state_dict in checkpoint.state_dicts:
        if state_dict.role in roles:
            for tensor in state_dict.tensors:
                for each in (tensor, *tensor.parts):
                    if each.storage is not None:
                        found[each.storage.key] = each.storage.nbytes
    return sum(found.values())


def steps(checkpoint: Checkpoint) -> Iterator[tuple[Optimizer, list[Tensor]]]:
    """The step counters that are tensors, for each optimizer."""
    for optimizer in optimizer_states(checkpoint):
        found = [state.get("step") for group in optimizer.groups for state in group.states]
        tensors = [each for each in found if isinstance(each, Tensor)]
        if tensors:
            yield optimizer, tensors


def at_path(node: Node, *parts: str) -> Node:
    """What lies below a node; None where there is nothing."""
    for part in parts:
        if not isinstance(node, Mapping):
            return None
        node = next((child for each, child in node.entries if each == part), None)
    return node
