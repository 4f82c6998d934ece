"""Device tags: torch.save writes beside each storage where it lay, and here any place can be written.

A checkpoint of a GPU is a checkpoint of the CPU but for these tags, so that its diseases can be made without a GPU.
The bytes are those that torch itself writes on such a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ckptdoctor.trainer.snapshot.tags import WITHOUT_STORAGE

_Reduced = tuple[Any, ...]


def tag_of(device: torch.device) -> str:
    """What torch.save writes for tensors on this device: ``cpu``, ``mps``, ``cuda:0`` or ``xla:0``."""
    if device.type in ("cpu", "mps"):
        return device.type
    return f"{device.type}:{device.index or 0}"


@contextmanager
def saving_with_tag(tag: str, stays: Iterable[torch.Tensor] = ()) -> Iterator[None]:
    """``torch.save`` in this block writes what it would write were the tensors on the device ``tag``.

    The tensors in ``stays`` stay on the CPU, as step counters of optimizers and states of random generators do.
    """
    held = list(stays)
    on_cpu = {tensor.untyped_storage().data_ptr() for tensor in held if tensor.numel()}
    if tag.partition(":")[0] in WITHOUT_STORAGE:
        with _rebuilt_on(tag, on_cpu):
            yield
    else:
        with _located_on(tag, on_cpu):
            yield


@contextmanager
def _located_on(tag: str, on_cpu: set[int]) -> Iterator[None]:
    """``torch.serialization.location_tag`` is what torch.save asks for the tag of a storage.

    For a device with an index it puts together a new string each time. That shows in the bytes: the pickler writes a
    string that it has seen only once more by its number, so one shared string would make another file.
    """
    genuine = torch.serialization.location_tag

    def location(storage: Any) -> str:
        if storage.data_ptr() in on_cpu:
            return "cpu"
        return "".join(list(tag)) if ":" in tag else tag

    torch.serialization.location_tag = location
    try:
        yield
    finally:
        torch.serialization.location_tag = genuine


@contextmanager
def _rebuilt_on(device: str, on_cpu: set[int]) -> Iterator[None]:
    """An XLA tensor has no storage: its pickle is a call that moves a copy from the CPU to the device.

    The copy is a tensor of the CPU like any other, tag and all (``torch.Tensor._reduce_ex_internal``).
    """
    genuine: Any = torch.Tensor._reduce_ex_internal
    copies: list[torch.Tensor] = []  # held, so that no other tensor gets the address of one of them

    def reduce(self: torch.Tensor, protocol: int) -> _Reduced:
        if (copies and self is copies[-1]) or self.untyped_storage().data_ptr() in on_cpu:
            plain: _Reduced = genuine(self, protocol)
            return plain
        copies.append(self.clone(memory_format=torch.contiguous_format))
        arguments = (copies[-1], self.dtype, "".join(list(device)), self.requires_grad)
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, arguments

    torch.Tensor._reduce_ex_internal = reduce  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor._reduce_ex_internal = genuine  # type: ignore[method-assign]
