"""Which optimizers' states an edit of tensors leaves behind: they fit the weights before it, and not after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, KeyPath, StateDict, Tensor, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.edits import Edit, Fill
from ckptdoctor.edits.steps import Change
from ckptdoctor.edits.tensors import TENSOR_EDITS, sources
from ckptdoctor.facts import names
from ckptdoctor.facts.optimizers import SavedOptimizer, in_order, saved_optimizers
from ckptdoctor.facts.parameters import candidates, may_train

KIND = "optimizer-unfit"


def left_behind(checkpoint: Checkpoint, run: Sequence[Edit]) -> Iterator[Change]:
    """A change for each optimizer that goes with weights whose shapes, order or number the edits change.

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
            told = f"does not fit the repaired weights: --drop {name}, or train on with a fresh one"
            yield Change(KIND, ((name, told),), (), None)


def _touched(edit: Edit) -> Iterator[KeyPath]:
    """The parameters that the edit changes, takes or adds."""
    if isinstance(edit, Fill):
        if may_train(str(edit.path[-1]), BY_NAME.get(edit.dtype)):
            yield edit.path
    elif isinstance(edit, TENSOR_EDITS):
        yield from sources(edit)


def _fits(optimizer: SavedOptimizer, weights: StateDict, paths: set[KeyPath]) -> bool:
    """Whether the optimizer goes with these weights, as far as names or else shapes tell, and with one that changes."""
    touched = [each for each in weights.tensors if each.path in paths and may_train(each.key, each.dtype)]
    added = not paths.issubset([each.path for each in weights.tensors])
    if optimizer.names is not None:
        return _named(optimizer, touched) or (added and _named(optimizer, weights.tensors))
    return bool(touched or added) and in_order(optimizer.slots, candidates(weights))


def _named(optimizer: SavedOptimizer, tensors: Sequence[Tensor]) -> bool:
    """Whether one of the tensors is a parameter of the optimizer."""
    shapes = {names.bare(each.key): each.shape for each in tensors}
    return any(
        slot.name in shapes and slot.shape in (None, shapes[slot.name])
        for slot in optimizer.slots
        if slot.name is not None
    )
