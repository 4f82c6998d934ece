"""Reads a checkpoint to be shown, or the part of it that somebody asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, KeyPath, Node, at
from ckptdoctor.engine.roots import find_root


@dataclass(frozen=True, slots=True)
class Part:
    """``node``, which lies at ``root``. ``checkpoint`` keeps only the tensors and storages that are in it."""

    checkpoint: Checkpoint
    root: KeyPath
    node: Node


def read_part(path: str, root: str | None = None) -> Part:
    """The contents of the file at ``path`` below ``root`` (None: all).

    Raises what ``formats.open_checkpoint`` does, and UsageError when there is no such root.
    """
    return part_of(formats.open_checkpoint(path), root)


def part_of(checkpoint: Checkpoint, root: str | None) -> Part:
    """What lies below ``root`` (None: all). Raises UsageError when there is no such root."""
    if root is None:
        return Part(checkpoint, (), checkpoint.tree)
    place = find_root(checkpoint.tree, root)
    return Part(_below(checkpoint, place), place, at(checkpoint.tree, place))


def _below(checkpoint: Checkpoint, root: KeyPath) -> Checkpoint:
    tensors = tuple([tensor for tensor in checkpoint.tensors if tensor.path[: len(root)] == root])
    storages = {tensor.storage.key for tensor in tensors if tensor.storage is not None}
    return replace(
        checkpoint,
        tensors=tensors,
        storages=tuple([storage for storage in checkpoint.storages if storage.key in storages]),
        state_dicts=tuple([each for each in checkpoint.state_dicts if each.path[: len(root)] == root]),
    )
