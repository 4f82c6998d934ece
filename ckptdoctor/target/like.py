"""Learns a reference from another checkpoint: its model's keys, shapes and dtypes."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, StateDict, Tensor, show_path
from ckptdoctor.checkpoint.checkpoint import lists_all, told_of, unread_files
from ckptdoctor.checkpoint.expectation import is_extra_state
from ckptdoctor.checkpoint.tensor import shared_view
from ckptdoctor.checkpoint.weights import WEIGHTS, weights_among
from ckptdoctor.errors import DamagedError, NotACheckpointError, UsageError
from ckptdoctor.remote.addresses import shown
from ckptdoctor.shell import quote
from ckptdoctor.target import Expected, Reference, hub_cache

_SAFETENSORS = ".safetensors"


def from_checkpoint(path: str, root: str | None = None) -> Reference:
    """Return the contents of the checkpoint at ``path``, as what another one is expected to hold.

    ``root`` names the state dict (key path, parts joined by "/") where there is more than one that it could be; in a
    file with only one it need not be there. Raises UsageError when there is none or no telling which, what
    ``formats.open_checkpoint`` raises for a file that cannot be read, and DamagedError where a file of a folder is
    missing or damaged: nothing says of what shapes its tensors are. A name of the Hugging Face Hub (``org/name``)
    stands for what is in its local cache.
    """
    checkpoint = _opened(path)
    state_dict = _chosen(checkpoint, root)
    unread = unread_files(checkpoint, state_dict.path)
    if unread and not lists_all(checkpoint):
        raise DamagedError(
            f"{shown(path)} is incomplete, so nothing can be compared with it: "
            f"{told_of(checkpoint, unread)}. Name a complete copy."
        )
    tensors = {tensor.key: Expected(tensor.shape, tensor.dtype) for tensor in state_dict.tensors}
    extra = frozenset(filter(is_extra_state, (*tensors, *state_dict.others)))
    ties, once = _ties(state_dict.tensors), _once(state_dict.tensors)
    option = f"--like {quote(shown(path))}"
    return Reference(shown(path), tensors, state_dict.path, option, ties, once=once, extra=extra, beside=checkpoint)


def _opened(path: str) -> Checkpoint:
    cached = hub_cache.folder_of(path)
    try:
        return formats.open_checkpoint(path if cached is None else cached)
    except NotACheckpointError as error:
        if cached is None:
            raise
        raise UsageError(f"{path} is in the Hugging Face cache without weights. {hub_cache.fetch(path)}") from error


def _ties(tensors: Iterable[Tensor]) -> tuple[tuple[str, ...], ...]:
    """Return the keys under which one and the same view of a storage was saved: one tensor of the model."""
    groups: dict[object, list[str]] = {}
    for each in tensors:
        view = shared_view(each)
        if view is not None:
            groups.setdefault(view, []).append(each.key)
    return tuple([tuple(keys) for keys in groups.values() if len(keys) > 1])


def _once(tensors: Iterable[Tensor]) -> bool:
    """Return whether all of them are in safetensors files, which hold a tensor under one name only.

    Source: ``safetensors.torch.save_file`` refuses shared memory; its ``save_model`` leaves further names out.
    """
    extents = [each.storage.extent if each.storage is not None else None for each in tensors]
    return bool(extents) and all(each is not None and each.file.endswith(_SAFETENSORS) for each in extents)


def _chosen(checkpoint: Checkpoint, root: str | None) -> StateDict:
    candidates = _candidates(checkpoint)
    if root is not None:
        named = [each for each in checkpoint.state_dicts if show_path(each.path) == root.strip("/")]
        if named:
            return named[0]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise UsageError(f"{checkpoint.path} has no model state dict to compare another file with.")
    found = " and ".join([show_path(each.path) for each in candidates])
    raise UsageError(f"{checkpoint.path} has more than one set of weights ({found}): choose one with --root.")


def _candidates(checkpoint: Checkpoint) -> list[StateDict]:
    """Return the state dicts that could be meant: those of models, or averaged weights where there are no others."""
    weights = weights_among(checkpoint.state_dicts)
    for role in WEIGHTS:
        found = [each for each in weights if each.role is role]
        if found:
            return found
    return []
