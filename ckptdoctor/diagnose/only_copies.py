"""Finds the weights that a checkpoint holds once: leaving one of them out loses what was trained.

No weights are what torch or a model counts and works out itself (batches, positions, masks), and whatever is outside
of a model's state dict: an optimizer's moments, say.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Tensor
from ckptdoctor.checkpoint.expectation import is_extra_state
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.facts import names
from ckptdoctor.match.buffers import DECAY, UPDATES, is_derived

_COUNTERS = ("num_batches_tracked", names.N_AVERAGED, DECAY, UPDATES)


def only_copies(checkpoint: Checkpoint, going: Iterable[KeyPath]) -> list[Tensor]:
    """Return the weights at or below these paths that are nowhere else in the checkpoint, in its order."""
    paths = set(going)
    depths = {len(path) for path in paths}
    weights = {each.path for held in checkpoint.state_dicts if held.role in WEIGHTS for each in held.tensors}
    goes = [each for each in checkpoint.tensors if any(each.path[:depth] in paths for depth in depths)]
    goes = [each for each in goes if each.path in weights and is_weight(each)]
    if not goes:
        return []
    stays = {
        mark
        for each in checkpoint.tensors
        if not any(each.path[:depth] in paths for depth in depths)
        for mark in _marks(each)
    }
    return [each for each in goes if stays.isdisjoint(_marks(each))]


def may_have_copies(checkpoint: Checkpoint, keys: Iterable[str]) -> bool:
    """Return whether headers leave it open that one of these weights has a copy under another key.

    Something else of its shape and dtype is there, and one of the two has no checksum of its own.
    """
    mine = set(keys)
    forms = {_form(each) for each in checkpoint.tensors if each.key in mine}
    alike = [each for each in checkpoint.tensors if _form(each) in forms]
    unknown = {_form(each) for each in alike if not any(mark[0] == "bytes" for mark in _marks(each))}
    kept = {_form(each) for each in alike if each.key not in mine}
    return not unknown.isdisjoint(kept)


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype.name


def is_weight(tensor: Tensor) -> bool:
    """Return whether a tensor among weights may be one.

    Counters, extra state and what the model works out itself are none.
    """
    key = tensor.key
    if not tensor.numel or is_extra_state(key) or is_derived(key, tensor.shape, tensor.dtype):
        return False
    if tensor.numel == 1 and names.is_counter(key) and tensor.dtype.name == "float64":  # thop's
        return False
    return not (tensor.numel == 1 and key.rpartition(".")[2] in _COUNTERS)


def _marks(tensor: Tensor) -> list[tuple[object, ...]]:
    """Return what a tensor has in common with its copies.

    It is the elements that it shows, and the checksum of what it fills.
    """
    storage = tensor.storage
    if storage is None or tensor.parts:
        return []
    marks: list[tuple[object, ...]] = [("view", tensor.view_id)]
    if storage.crc32 is not None and tensor.offset == 0 and tensor.nbytes == storage.nbytes:
        marks.append(("bytes", storage.crc32, tensor.form))
    return marks
