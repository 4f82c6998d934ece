"""Gives storages another device tag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Cycle, Node, Storage, Tensor
from ckptdoctor.checkpoint.changed_trees import derived, mapped, with_tree
from ckptdoctor.edits import Retag
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.fix import Change
from ckptdoctor.noun import replace


def _retag(checkpoint: Checkpoint, edit: Retag) -> Checkpoint:
    changes = {each.key: replace(each, device=edit.to) for each in _named(checkpoint, edit)}
    if not changes:
        return checkpoint

    def change(node: Tensor | Cycle) -> Node:
        return _on_new_storage(node, changes) if isinstance(node, Tensor) else node

    storages = tuple([changes.get(storage.key, storage) for storage in checkpoint.storages])
    return with_tree(replace(checkpoint, storages=storages), mapped(checkpoint.tree, change))


def _named(checkpoint: Checkpoint, edit: Retag) -> Iterator[Storage]:
    """Yield the storages that the edit names; of all devices, those that have another tag."""
    wanted = None if edit.storages is None else frozenset(edit.storages)
    for storage in checkpoint.storages:
        named = storage.device != edit.to if edit.devices is None else storage.device in edit.devices
        if named and (wanted is None or storage.key in wanted):
            yield storage


def _on_new_storage(tensor: Tensor, changes: dict[str, Storage]) -> Tensor:
    """Return the tensor on the storage that replaces its own, with that one's device tag."""
    if tensor.parts:
        parts = tuple([_on_new_storage(part, changes) for part in tensor.parts])
        if any(new is not old for new, old in zip(parts, tensor.parts, strict=True)):
            # a tensor without bytes of its own (sparse, a subclass) is where its parts are
            follows = tensor.storage is None and tensor.device == tensor.parts[0].device
            tensor = derived(tensor, parts=parts, device=parts[0].device if follows else tensor.device)
    new = changes.get(tensor.storage.key) if tensor.storage is not None else None
    if new is None:
        return tensor
    if tensor.moved:  # what loading moves elsewhere goes there from any place
        return derived(tensor, storage=new)
    return derived(tensor, storage=new, device=new.device)


def _told(checkpoint: Checkpoint, edit: Retag, after: Checkpoint) -> Iterator[Change]:
    tally = Counter([each.device for each in _named(checkpoint, edit) if each.device != edit.to])
    for device, number in tally.items():
        yield Change("retag", ((device, edit.to),), ((number, "storage"),))


RETAG = Act(_retag, _told)
