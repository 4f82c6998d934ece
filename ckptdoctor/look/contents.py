"""Reads a checkpoint to be shown, or the part of it that somebody asks for."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, KeyPath, Node, Storage, Tensor, at
from ckptdoctor.checkpoint.roots import find_root
from ckptdoctor.noun import noun, replace


@noun
class FilterAsked:
    """A filter as it was written, of how many tensors it was asked, and where none matches, one that some do."""

    text: str
    tensors: int
    better: str = ""


@noun
class Excerpt:
    """``node``, which is at ``root``. ``checkpoint`` keeps only the tensors and storages that are in it.

    ``asked`` is the filter that kept no more than these; None: there was none.
    """

    checkpoint: Checkpoint
    root: KeyPath
    node: Node
    asked: FilterAsked | None = None


def read_part(path: str, root: str | None = None) -> Excerpt:
    """Return the contents of the file at ``path`` below ``root`` (None: all).

    Raises what ``formats.open_checkpoint`` does, and UsageError when there is no such root.
    """
    return part_of(formats.open_checkpoint(path, headers=True), root)


def part_of(checkpoint: Checkpoint, root: str | None) -> Excerpt:
    """Return the excerpt below ``root`` (None: all). Raises UsageError when there is no such root."""
    if root is None:
        return Excerpt(checkpoint, (), checkpoint.tree)
    place = find_root(checkpoint.tree, root)
    return Excerpt(_below(checkpoint, place), place, at(checkpoint.tree, place))


def _below(checkpoint: Checkpoint, root: KeyPath) -> Checkpoint:
    tensors = tuple([tensor for tensor in checkpoint.tensors if tensor.path[: len(root)] == root])
    state_dicts = tuple([each for each in checkpoint.state_dicts if each.path[: len(root)] == root])
    return replace(checkpoint, tensors=tensors, storages=viewed(checkpoint, tensors), state_dicts=state_dicts)


def viewed(checkpoint: Checkpoint, tensors: Iterable[Tensor]) -> tuple[Storage, ...]:
    """Return the storages that these tensors view."""
    keys = {tensor.storage.key for tensor in tensors if tensor.storage is not None}
    return tuple([storage for storage in checkpoint.storages if storage.key in keys])
