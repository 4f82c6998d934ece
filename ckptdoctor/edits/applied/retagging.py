"""Gives storages another device tag."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Cycle, Node, Storage, Tensor
from ckptdoctor.checkpoint.changed_trees import derived, mapped, with_tree
from ckptdoctor.edits import Retag
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.fix import Change
from ckptdoctor.noun import replace


def _retag(checkpoint: Checkpoint, edit: Retag) -> Checkpoint:
    wanted = None if edit.storages is None else frozenset(edit.storages)
    changes: dict[str, Storage] = {}
    for storage in checkpoint.storages:
        named = storage.device != edit.to if edit.devices is None else storage.device in edit.devices
        if named and (wanted is None or storage.key in wanted):
            changes[storage.key] = replace(storage, device=edit.to)
    return _with_storages(checkpoint, changes, edit.to)


def _with_storages(checkpoint: Checkpoint, changes: dict[str, Storage], device: str | None = None) -> Checkpoint:
    """Return the checkpoint with some storages replaced (by key); tensors on them, and those made of them, follow."""
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


def _told(checkpoint: Checkpoint, edit: Retag, after: Checkpoint) -> Iterator[Change]:
    wanted = None if edit.storages is None else set(edit.storages)
    tally: dict[str, int] = {}
    for storage in checkpoint.storages:
        named = storage.device != edit.to if edit.devices is None else storage.device in edit.devices
        if named and storage.device != edit.to and (wanted is None or storage.key in wanted):
            tally[storage.device] = tally.get(storage.device, 0) + 1
    for device, number in tally.items():
        yield Change("retag", ((device, edit.to),), ((number, "storage"),))


RETAG = Act(_retag, _told)
