"""What the contents must be after edits, worked out on the nouns alone.

The formats write whatever comes of it (``edits.applied.wanted``); that nothing else comes of it is held by an account
that shares no code with this (``account``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ckptdoctor.checkpoint import Checkpoint, Cycle, Node, Storage, Tensor, at, show_path
from ckptdoctor.checkpoint.plain_nodes import node_of
from ckptdoctor.checkpoint.rebuilding import with_tree
from ckptdoctor.checkpoint.reshaping import changed_at, derived, mapped, missing, moved
from ckptdoctor.edits import (
    Cast,
    Clone,
    Compact,
    Convert,
    Densify,
    Drop,
    Edit,
    Flatten,
    MakeContiguous,
    MakeTensors,
    MoveToCpu,
    Rename,
    RenameModules,
    Renumber,
    Reorder,
    Repickle,
    Replace,
    Retag,
    SetMetadata,
    SetSuffix,
    TakeRoot,
    TextMetadata,
    Truncate,
    Unwrap,
    WriteIndex,
)
from ckptdoctor.edits.applied import compacting, renaming, renumbering
from ckptdoctor.edits.applied.arranging import arrange
from ckptdoctor.edits.applied.array_tensors import make_tensors
from ckptdoctor.edits.applied.casting import cast
from ckptdoctor.edits.applied.densifying import densify
from ckptdoctor.edits.applied.flattening import flatten
from ckptdoctor.edits.applied.moving import move_to_cpu
from ckptdoctor.edits.applied.removing import without
from ckptdoctor.edits.applied.repickling import repickle
from ckptdoctor.edits.applied.unwrapping import unwrap
from ckptdoctor.edits.tensors import TENSOR_EDITS, runs
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.header_notes import metadata_notes


def apply(checkpoint: Checkpoint, edits: Iterable[Edit]) -> Checkpoint:
    """The checkpoint after the edits, one after another; its paths, tensors, storages and state dicts agree.

    Raises RefusedError, with both names, where two keys would get one, and for edits of what is not there.
    """
    for run in runs(edits):
        arranging = isinstance(run[0], TENSOR_EDITS)
        checkpoint = arrange(checkpoint, run) if arranging else _APPLY[type(run[0])](checkpoint, run[0])
    return checkpoint


def _retag(checkpoint: Checkpoint, edit: Retag) -> Checkpoint:
    wanted = None if edit.storages is None else frozenset(edit.storages)
    changes: dict[str, Storage] = {}
    for storage in checkpoint.storages:
        named = storage.device != edit.to if edit.devices is None else storage.device in edit.devices
        if named and (wanted is None or storage.key in wanted):
            changes[storage.key] = replace(storage, device=edit.to)
    return with_storages(checkpoint, changes, edit.to)


def with_storages(checkpoint: Checkpoint, changes: dict[str, Storage], device: str | None = None) -> Checkpoint:
    """The checkpoint with some storages replaced (by key); tensors on them, and those made of them, follow."""
    if not changes:
        return checkpoint

    def change(node: Tensor | Cycle) -> Node:
        return _on_new_storage(node, changes, device) if isinstance(node, Tensor) else node

    storages = tuple([changes.get(storage.key, storage) for storage in checkpoint.storages])
    return with_tree(replace(checkpoint, storages=storages), mapped(checkpoint.tree, change))


def _on_new_storage(tensor: Tensor, changes: dict[str, Storage], device: str | None) -> Tensor:
    if tensor.parts:
        parts = tuple([_on_new_storage(part, changes, device) for part in tensor.parts])
        if any(new is not old for new, old in zip(parts, tensor.parts, strict=True)):
            # a tensor without bytes of its own (sparse, a subclass) lies where its parts lie
            follows = device is not None and tensor.storage is None and tensor.device == tensor.parts[0].device
            tensor = derived(tensor, parts=parts, device=parts[0].device if follows else tensor.device)
    new = changes.get(tensor.storage.key) if tensor.storage is not None else None
    if new is None:
        return tensor
    if device is None or tensor.moved:  # what loading moves elsewhere goes there from any place
        return derived(tensor, storage=new)
    return derived(tensor, storage=new, device=device)


def _drop(checkpoint: Checkpoint, edit: Drop) -> Checkpoint:
    return with_tree(checkpoint, without(checkpoint.tree, edit.paths))


def _take_root(checkpoint: Checkpoint, edit: TakeRoot) -> Checkpoint:
    try:
        tree = at(checkpoint.tree, edit.path)
    except KeyError as error:
        raise missing(edit.path) from error

    def check(node: Tensor | Cycle) -> Node:
        if isinstance(node, Cycle) and node.path[: len(edit.path)] != edit.path:
            raise RefusedError(
                f"{show_path(edit.path)} refers back to {show_path(node.path)}, so the rest cannot be left out."
            )
        return node

    mapped(tree, check)
    return with_tree(checkpoint, moved(tree, edit.path, ()))


def _replace(checkpoint: Checkpoint, edit: Replace) -> Checkpoint:
    return with_tree(checkpoint, changed_at(checkpoint.tree, edit.path, lambda _: node_of(edit.value)))


def _set_metadata(checkpoint: Checkpoint, edit: SetMetadata) -> Checkpoint:
    return replace(checkpoint, metadata={**(checkpoint.metadata or {}), edit.key: edit.value})


def _text_metadata(checkpoint: Checkpoint, edit: TextMetadata) -> Checkpoint:
    texts = {key: text for key, text in edit.entries if text is not None}
    gone = set(metadata_notes(checkpoint))
    container = checkpoint.container
    if container is not None:
        container = replace(container, notes=tuple([note for note in container.notes if note not in gone]))
    notes = tuple([note for note in checkpoint.notes if note not in gone])
    return replace(checkpoint, metadata={**(checkpoint.metadata or {}), **texts}, notes=notes, container=container)


def _truncate(checkpoint: Checkpoint, edit: Truncate) -> Checkpoint:
    return replace(checkpoint, size=edit.length)


def _convert(checkpoint: Checkpoint, edit: Convert) -> Checkpoint:
    return replace(checkpoint, format=edit.format)


def _write_index(checkpoint: Checkpoint, edit: WriteIndex) -> Checkpoint:
    return replace(checkpoint, notes=tuple([note for note in checkpoint.notes if note.member != edit.name]))


def _same(checkpoint: Checkpoint, edit: Edit) -> Checkpoint:
    return checkpoint


_APPLY: dict[type, Callable[[Checkpoint, Any], Checkpoint]] = {
    Rename: renaming.rename,
    RenameModules: renaming.rename_modules,
    Renumber: renumbering.renumber,
    Reorder: renumbering.reorder,
    Retag: _retag,
    Drop: _drop,
    TakeRoot: _take_root,
    Compact: compacting.compact,
    MakeContiguous: compacting.make_contiguous,
    Clone: compacting.make_contiguous,
    Densify: densify,
    Cast: cast,
    MoveToCpu: move_to_cpu,
    Replace: _replace,
    MakeTensors: make_tensors,
    Repickle: repickle,
    Flatten: flatten,
    SetMetadata: _set_metadata,
    TextMetadata: _text_metadata,
    SetSuffix: _same,
    Truncate: _truncate,
    Convert: _convert,
    Unwrap: unwrap,
    WriteIndex: _write_index,
}
