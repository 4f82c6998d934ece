"""Some tensors of a checkpoint are one: told without NumPy, with the bytes that are read to see the values of all."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Tensor


def bytes_to_read(checkpoint: Checkpoint) -> int:
    """Return the number of bytes that ``examine_values`` looks at: those of tied tensors once."""
    return sum(tensor.nbytes for tensor in distinct(checkpoint.tensors))


def distinct(tensors: tuple[Tensor, ...]) -> Iterator[Tensor]:
    """Yield the tensors in their order, those that are one once."""
    seen: set[object] = set()
    for tensor in tensors:
        elements = shown_by(tensor)
        if elements not in seen:
            seen.add(elements)
            yield tensor


def shown_by(tensor: Tensor) -> object:
    """Return the same for tensors with the same elements."""
    if tensor.parts or tensor.chunks or (tensor.storage is None and tensor.values is None):
        return tensor.path
    place = tensor.storage.key if tensor.storage is not None else id(tensor.values)
    return place, tensor.form, tensor.details
