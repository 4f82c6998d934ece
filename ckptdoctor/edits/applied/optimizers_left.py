"""Finds the optimizers whose states fit the weights before an edit of tensors, and not after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Role, StateDict, Tensor, at, show_path
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.edits import Edit, Fill, Rename
from ckptdoctor.edits.fix import Change
from ckptdoctor.edits.renaming import named_after
from ckptdoctor.edits.tensors import TENSOR_EDITS, sources
from ckptdoctor.facts import names
from ckptdoctor.facts.optimizers import SavedOptimizer, in_order, saved_optimizers
from ckptdoctor.facts.weight_sets import candidates, may_train

KIND = "optimizer-unfit"


def left_behind(checkpoint: Checkpoint, run: Sequence[Edit]) -> Iterator[Change]:
    """Yield a change for each optimizer that goes with weights whose shapes, order or number the edits change.

    Its state stays as it is: only whoever trains on can say what becomes of moments whose parameters were taken apart.
    """
    optimizers = saved_optimizers(checkpoint)
    if not optimizers:
        return
    paths = {path for edit in run for path in _touched(edit)}
    places = {path[:-1] for path in paths}
    weights = [each for each in checkpoint.state_dicts if each.role in WEIGHTS and each.path in places]
    for optimizer in optimizers:
        if any(_fits(optimizer, each, paths) for each in weights):
            name = show_path(optimizer.path)
            told = f"does not fit the repaired weights: --drop {name}, or continue training with a fresh one"
            yield Change(KIND, ((name, told),), (), None)


def follows(checkpoint: Checkpoint, edit: Rename) -> int:
    """Return how many parameters get new names in optimizers that call them by the keys that are renamed."""
    old, keys = {pair[0] for pair in edit.pairs}, _keys(checkpoint, edit.state_dict)
    named = [called for _, called in _by_name(checkpoint) if named_after(called, keys)]
    return sum(len(old.intersection(called)) for called in named)


def named_otherwise(checkpoint: Checkpoint, edit: Rename, after: Checkpoint) -> Iterator[Change]:
    """Yield a change for each optimizer that calls some parameters by these keys, and others otherwise."""
    old = {pair[0] for pair in edit.pairs}
    places = [each.path for each in checkpoint.state_dicts if each.role in WEIGHTS]
    for path, called in _by_name(checkpoint):
        theirs = [_keys(each, place) for each in (checkpoint, after) for place in places]
        if old.isdisjoint(called) or any(named_after(called, keys) for keys in theirs):
            continue
        strange = next(each for each in called if each not in _keys(checkpoint, edit.state_dict))
        told = f"keeps its names for parameters, since {strange} is not a key of these weights"
        yield Change(KIND, ((show_path(path), told),), (), None)


def _by_name(checkpoint: Checkpoint) -> list[tuple[KeyPath, tuple[str, ...]]]:
    """Return the optimizers that have names in place of numbers, with what they call their parameters."""
    paths = [each.path for each in checkpoint.state_dicts if each.role is Role.OPTIMIZER]
    found = [(path, called_by_name(at(checkpoint.tree, path))) for path in paths]
    return [(path, called) for path, called in found if called]


def called_by_name(node: Node) -> tuple[str, ...]:
    """Return what the state of an optimizer calls its parameters where it gives them no numbers; () where it does.

    So do FSDP (``full_optim_state_dict``) and ``torch.distributed.checkpoint.state_dict``: the state is keyed by names,
    which the ``params`` of each group list.
    """
    parts = dict(node.entries) if isinstance(node, Mapping) else {}
    groups, state = parts.get("param_groups"), parts.get("state")
    found: list[object] = [part for part, _ in state.entries] if isinstance(state, Mapping) else []
    for group in groups.items if isinstance(groups, Items) else ():
        params = dict(group.entries).get("params") if isinstance(group, Mapping) else None
        found += params.items if isinstance(params, Items) else ()
    named = [each for each in found if isinstance(each, str)]
    return tuple(dict.fromkeys(named)) if len(named) == len(found) else ()


def _keys(checkpoint: Checkpoint, path: KeyPath) -> frozenset[str]:
    node = at(checkpoint.tree, path)
    return frozenset([part for part, _ in node.entries if isinstance(part, str)] if isinstance(node, Mapping) else ())


def _touched(edit: Edit) -> Iterator[KeyPath]:
    """Yield the parameters that the edit changes, takes or adds."""
    if isinstance(edit, Fill):
        if may_train(str(edit.path[-1]), BY_NAME.get(edit.dtype)):
            yield edit.path
    elif isinstance(edit, TENSOR_EDITS):
        yield from sources(edit)


def _fits(optimizer: SavedOptimizer, weights: StateDict, paths: set[KeyPath]) -> bool:
    """Return whether the optimizer goes with these weights, by names or else shapes, and with one that changes."""
    touched = [each for each in weights.tensors if each.path in paths and may_train(each.key, each.dtype)]
    added = not paths.issubset([each.path for each in weights.tensors])
    if optimizer.names is not None:
        return _named(optimizer, touched) or (added and _named(optimizer, weights.tensors))
    return bool(touched or added) and in_order(optimizer.slots, candidates(weights))


def _named(optimizer: SavedOptimizer, tensors: Sequence[Tensor]) -> bool:
    """Return whether one of the tensors is a parameter of the optimizer."""
    shapes = {names.bare(each.key): each.shape for each in tensors}
    return any(
        slot.name in shapes and slot.shape in (None, shapes[slot.name])
        for slot in optimizer.slots
        if slot.name is not None
    )
