"""What makes two tensors one and the same: the elements of one storage, seen in the same way."""

from __future__ import annotations

from collections.abc import Hashable

from ckptdoctor.checkpoint import Tensor


def view_of(tensor: Tensor) -> Hashable:
    """What tied tensors have in common, and no others. Nothing is tied that has no storage of its own."""
    storage = tensor.storage
    if storage is None or storage.extent is None or tensor.parts or tensor.chunks:
        return tensor.path
    return storage.extent, tensor.form, tensor.details
