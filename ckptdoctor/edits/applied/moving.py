"""Turns tensors of devices without storages into tensors of the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Cycle, DType, Node, Storage, Tensor
from ckptdoctor.checkpoint.changed_trees import derived, mapped, names_in, with_tree
from ckptdoctor.edits import MoveToCpu
from ckptdoctor.edits.applied.act import Act, Original
from ckptdoctor.edits.elements import Elements, View
from ckptdoctor.edits.fix import Change
from ckptdoctor.facts import devices
from ckptdoctor.noun import replace


def movable(tensor: Tensor, edit: MoveToCpu) -> bool:
    """Return whether the edit changes the tensor."""
    return tensor.moved and devices.has_values(tensor) and (edit.devices is None or tensor.device in edit.devices)


def moved_tensors(checkpoint: Checkpoint, edit: MoveToCpu) -> Iterator[Tensor]:
    """Return the tensors that the edit changes, parts of others among them."""
    return (tensor for tensor in devices.all_tensors(checkpoint) if movable(tensor, edit))


def move_to_cpu(checkpoint: Checkpoint, edit: MoveToCpu) -> Checkpoint:
    """Return the checkpoint with these tensors where their values are: on the CPU."""

    def change(node: Tensor | Cycle) -> Node:
        return _changed(node, edit) if isinstance(node, Tensor) else node

    made = with_tree(checkpoint, mapped(checkpoint.tree, change))
    if made is checkpoint or any(tensor.moved for tensor in devices.all_tensors(made)):
        return made
    # parameters hide how the tensors in them are made, so that with_tree does not know these names to be gone
    gone = devices.names_of_arrays(checkpoint) - names_in(made.tree)
    return replace(made, globals=tuple([each for each in made.globals if each.full not in gone]))


def held_values(checkpoint: Checkpoint, edit: MoveToCpu, original: Original) -> dict[str, Elements]:
    """Return the elements of each storage that the edit makes, by key, as they are in the pickle."""
    found = {_key(each): each for each in moved_tensors(checkpoint, edit)}
    return {key: _held(key, each.dtype, each.values) for key, each in found.items() if each.values is not None}


def _held(key: str, dtype: DType, values: memoryview) -> View:
    width = dtype.bits // 8
    return View(key, 0, width, (len(values) // width,), (1,), values)


def _changed(tensor: Tensor, edit: MoveToCpu) -> Tensor:
    parts = tuple([_changed(part, edit) for part in tensor.parts])
    if any(new is not old for new, old in zip(parts, tensor.parts, strict=True)):
        tensor = derived(tensor, parts=parts)
    if not movable(tensor, edit):
        return tensor
    rebuild = devices.on_cpu(tensor) if tensor.rebuild in devices.MOVERS else tensor.rebuild
    if tensor.values is not None:
        storage = Storage(_key(tensor), len(tensor.values), tensor.dtype, devices.CPU, None)
        return derived(tensor, storage=storage, device=devices.CPU, rebuild=rebuild, values=None)
    place = tensor.storage.device if tensor.storage is not None else tensor.parts[0].device
    return derived(tensor, device=place, rebuild=rebuild)


def _key(tensor: Tensor) -> str:
    """Return what the storage is called here that the elements of an array get: those of one array are one object."""
    return f"array {id(tensor.values)} {tensor.dtype.name}"


def _told(checkpoint: Checkpoint, edit: MoveToCpu, after: Checkpoint) -> Iterator[Change]:
    tally = Counter([tensor.device for tensor in moved_tensors(checkpoint, edit)])
    for device, number in tally.items():
        yield Change("move-to-cpu", ((device, devices.CPU),), ((number, "tensor"),))


MOVE_TO_CPU = Act(move_to_cpu, _told, held_values)
