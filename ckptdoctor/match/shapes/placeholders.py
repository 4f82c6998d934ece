"""S511: parameters that hold nothing, because their values were on other ranks when the file was saved."""

from __future__ import annotations

from math import prod

from ckptdoctor.checkpoint import StateDict, Tensor
from ckptdoctor.match.shapes.pairs import Shape, words
from ckptdoctor.noun import noun

_WEIGHTS = 4  # so many weights at least: one empty tensor is an accident
_SHARE = 3  # two of three weights must be placeholders
# layers whose weights are vectors, of one element too: norms and activations
_VECTORS = frozenset(["bn", "bn1", "bn2", "bn3", "ln", "ln1", "ln2", "act", "act1", "act2", "scale", "gamma"])


@noun
class Placeholders:
    """The tensors without values, and the weights that have some."""

    empty: tuple[Tensor, ...]
    real: int


def placeholders(state_dict: StateDict) -> Placeholders | None:
    """Return the placeholders of a state dict, where most of the weights that should be matrices are some."""
    # most files have none: said before any name is taken apart
    if not any(0 in tensor.shape or tensor.shape == (1,) for tensor in state_dict.tensors):
        return None
    weights = [tensor for tensor in state_dict.tensors if tensor.key.endswith("weight") and not _vector(tensor.key)]
    empty = [tensor for tensor in weights if is_placeholder(tensor.shape)]
    if len(weights) < _WEIGHTS or _SHARE * len(empty) < 2 * len(weights):
        return None
    known = set(map(id, empty))  # comparing all fields of 50,000 tensors would take longer than the rules do
    gone = [tensor for tensor in state_dict.tensors if 0 in tensor.shape or id(tensor) in known]
    return Placeholders(tuple(gone), len(weights) - len(empty))


def is_placeholder(shape: Shape) -> bool:
    """Return whether a shape is what ZeRO stage 3 leaves of a parameter: no elements, or a vector of one."""
    return prod(shape) == 0 or shape == (1,)


def _vector(key: str) -> bool:
    return any(word in _VECTORS or word.endswith(("norm", "relu")) for word in words(key.rpartition(".")[0]))
