"""Tells which state dicts are the weights of a model."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.checkpoint.checkpoint import Checkpoint, Role, StateDict
from ckptdoctor.checkpoint.keypath import KeyPath

# what weights are saved as: those that were trained, and averages of them
WEIGHTS = (Role.MODEL, Role.EMA)


def weights_among(state_dicts: Iterable[StateDict]) -> list[StateDict]:
    """Return the state dicts of models and averaged models, in their order.

    A dict with a tensor or two of its own (the best accuracy, a generator's state) around larger dicts does not count,
    nor does one of single numbers next to others: Lightning keeps the scores of its best checkpoints by their paths.
    """
    found = [each for each in state_dicts if each.role in WEIGHTS]
    found = [each for each in found if any(tensor.shape for tensor in each.tensors)] or found
    largest: dict[KeyPath, int] = {}  # at each path: the size of the largest set somewhere below it
    for each in found:
        for depth in range(len(each.path)):
            around = each.path[:depth]
            largest[around] = max(largest.get(around, 0), len(each.tensors))
    return [each for each in found if len(each.tensors) > largest.get(each.path, 0)]


def top_weights(checkpoint: Checkpoint) -> StateDict | None:
    """Return the weights of a model at the top of the file, where there are some."""
    return next((each for each in checkpoint.state_dicts if not each.path and each.role is Role.MODEL), None)
