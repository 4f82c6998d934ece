"""What the tensors of a file are like, all together: told once, before any rule looks at one of them."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ckptdoctor.checkpoint import Checkpoint, Mapping, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.facts.names import mentions

# bytes of torch.get_rng_state(), of a CUDA generator's state, of one before torch 1.11, and of an MPS generator's
RNG_STATE_LENGTHS = frozenset({5056, 16, 816, 44})
_NUMBERS = (int, bool, float, type(None))
_CPU = frozenset({"cpu"})


def is_flat(checkpoint: Checkpoint) -> bool:
    """Whether the file is one dict of tensors under texts, as ``Module.state_dict()`` gives it, and nothing else.

    The dict may have attributes: ``_metadata``.
    """
    if len(checkpoint.state_dicts) != 1 or not isinstance(checkpoint.tree, Mapping):
        return False
    (only,) = checkpoint.state_dicts
    return not only.path and only.role in WEIGHTS and len(only.tensors) == len(checkpoint.tree.entries)


def has_only_versions(checkpoint: Checkpoint) -> bool:
    """Whether the attributes of the dict at the top hold nothing but numbers, as ``_metadata`` does; true for none."""
    attributes = checkpoint.tree.attributes if isinstance(checkpoint.tree, Mapping) else None
    stack = [attributes] if attributes is not None else []
    while stack:
        for _, child in stack.pop().entries:
            if isinstance(child, Mapping) and child.attributes is None:
                stack.append(child)
            elif type(child) not in _NUMBERS:
                return False
    return True


def mention(checkpoint: Checkpoint, words: Iterable[str]) -> bool:
    """Whether one of the words stands anywhere in the keys of the weights."""
    words = tuple(words)
    return any(each.role in WEIGHTS and mentions(each, words) for each in checkpoint.state_dicts)


@cached_by_identity
def all_dtypes(checkpoint: Checkpoint) -> set[str]:
    """The names of all dtypes."""
    return {each.dtype.name for each in checkpoint.tensors}


@cached_by_identity
def all_shapes(checkpoint: Checkpoint) -> set[tuple[int, ...]]:
    """All shapes."""
    return {each.shape for each in checkpoint.tensors}


@cached_by_identity
def in_c_order(checkpoint: Checkpoint) -> bool:
    """Whether every tensor is a plain array whose elements lie in C order without gaps."""
    views = {(each.shape, each.stride) for each in checkpoint.tensors}
    return {each.layout for each in checkpoint.tensors} <= {"strided"} and all(
        stride == contiguous_stride(shape) for shape, stride in views
    )


@cached_by_identity
def composed(checkpoint: Checkpoint) -> bool:
    """Whether a tensor is made of others, of another class than torch's own, or has no bytes of its own."""
    return any(each.storage is None or each.parts or each.subclass is not None for each in checkpoint.tensors)


@cached_by_identity
def on_the_cpu(checkpoint: Checkpoint) -> bool:
    """Whether every tensor has a storage, and all of both are tagged ``cpu``."""
    if composed(checkpoint):
        return False
    return {each.device for each in checkpoint.tensors} | {each.device for each in checkpoint.storages} <= _CPU


@cached_by_identity
def fill_their_storages(checkpoint: Checkpoint) -> bool:
    """Whether every tensor has a storage to itself, and views all of it in order."""
    tensors = checkpoint.tensors
    if composed(checkpoint) or not in_c_order(checkpoint):
        return False
    keys = {each.storage.key for each in tensors if each.storage is not None}
    return len(keys) == len(tensors) and _fill(tensors, {shape: prod(shape) for shape in all_shapes(checkpoint)})


def _fill(tensors: Iterable[Tensor], elements: dict[tuple[int, ...], int]) -> bool:
    return not [
        each
        for each in tensors
        if each.storage is None or each.offset or elements[each.shape] * each.dtype.bits != 8 * each.storage.nbytes
    ]
