"""Finds the tensors of a checkpoint in its files, as the regions that a seal hashes by themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Extent, Tensor, show_path
from ckptdoctor.checkpoint.tensor import byte_span
from ckptdoctor.sealing.manifest import SealedTensor

# the offset of a region, its length, and the tensors that it shows
Place = tuple[int, int, tuple[SealedTensor, ...]]


def places(checkpoint: Checkpoint) -> dict[str, list[Place]]:
    """Return the regions of each file by its real path, sorted and apart: extents that overlap are one."""
    found: dict[str, dict[tuple[int, int], list[SealedTensor]]] = {}
    for tensor in checkpoint.tensors:
        name = show_path(tensor.path)
        for piece, extent in _pieces(tensor):
            inside = found.setdefault(os.path.realpath(extent.file), {})
            shown = inside.setdefault((extent.offset, extent.length), [])
            shown.append(_seen(name, piece, extent.length))
    return {file: _apart(inside) for file, inside in found.items()}


def _pieces(tensor: Tensor) -> Iterator[tuple[Tensor, Extent]]:
    """Yield the tensors that hold the elements of one, each with the place of its storage."""
    if tensor.storage is not None and tensor.storage.extent is not None:
        yield tensor, tensor.storage.extent
    for part in tensor.parts:
        yield from _pieces(part)
    for _, chunk in tensor.chunks:
        yield from _pieces(chunk)


def _seen(name: str, tensor: Tensor, length: int) -> SealedTensor:
    if tensor.storage is None or tensor.storage.compressed:  # bytes of a deflated record are nobody's alone
        return SealedTensor(name, 0, length)
    start, stop = byte_span(tensor)
    return SealedTensor(name, min(start, length), min(stop, length))


def _apart(inside: dict[tuple[int, int], list[SealedTensor]]) -> list[Place]:
    regions: list[Place] = []
    for (offset, length), tensors in sorted(inside.items(), key=lambda item: (item[0][0], -item[0][1])):
        if regions and offset < regions[-1][0] + regions[-1][1]:
            start, had, shown = regions.pop()
            by = offset - start
            moved = [SealedTensor(each.name, each.start + by, each.stop + by) for each in tensors]
            regions.append((start, max(had, offset + length - start), (*shown, *moved)))
        else:
            regions.append((offset, length, tuple(tensors)))
    return [(offset, length, tuple(dict.fromkeys(tensors))) for offset, length, tensors in regions]
