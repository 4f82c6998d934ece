"""Which state dicts hold weights: those that options about keys speak of."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict


def weights(checkpoint: Checkpoint) -> list[StateDict]:
    """The state dicts of models and averaged models, in file order.

    Not a dict that only happens to hold some tensors beside the real state dicts inside it.
    """
    found = [each for each in checkpoint.state_dicts if each.role in (Role.MODEL, Role.EMA)]
    return [each for each in found if not any(_outweighs(other, each) for other in found)]


def _outweighs(inner: StateDict, outer: StateDict) -> bool:
    """Whether ``inner`` lies inside ``outer`` and holds at least as many tensors."""
    inside = len(inner.path) > len(outer.path) and inner.path[: len(outer.path)] == outer.path
    return inside and len(inner.tensors) >= len(outer.tensors)
