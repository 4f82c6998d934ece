"""Tensors of torch from the tensors that a checkpoint describes: same dtype, shape, stride and sharing, on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckptdoctor.checkpoint import Tensor, show_path
from ckptdoctor.checkpoint.wording import plural
from ckptdoctor.errors import DamagedError
from ckptdoctor.loading.inert import Inert

if TYPE_CHECKING:
    import torch

    from ckptdoctor.loading.storages import StorageReader

COMPRESSED_LAYOUTS = ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def make_tensor(tensor: Tensor, storages: StorageReader) -> torch.Tensor | Inert:
    """The tensor with its values. Kinds that only their own class can make come back as ``Inert`` with their parts.

    Raises DamagedError when its bytes are not all there or the view does not fit its storage.
    """
    made = _bare(tensor, storages)
    if isinstance(made, Inert):
        return made
    return _dressed(tensor, made)


def _bare(tensor: Tensor, storages: StorageReader) -> torch.Tensor | Inert:
    if tensor.chunks:
        return _assembled(tensor, storages)
    if tensor.layout == "sparse_coo":
        return _sparse_coo(tensor, storages)
    if tensor.layout in COMPRESSED_LAYOUTS:
        return _compressed(tensor, storages)
    if tensor.dtype.kind == "quantized":
        return _quantized(tensor, storages)
    if tensor.parts or tensor.layout != "strided":
        return _inert(tensor, storages)
    if tensor.values is not None:
        return _from_pickle(tensor, storages, tensor.values)
    if tensor.storage is None:
        return _meta(tensor) if tensor.device == "meta" else _inert(tensor, storages)
    return _strided(tensor, storages)


def _dressed(tensor: Tensor, made: torch.Tensor) -> torch.Tensor:
    """The same values with the conj and neg bits, requires_grad, and as a Parameter where it was one."""
    import torch

    details = dict(tensor.details)
    if details.get("conj"):
        made = made.conj()
    if details.get("neg"):
        made = torch._neg_view(made)
    if tensor.is_parameter:
        return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    if tensor.requires_grad:
        made.requires_grad_(True)
    return made


def _strided(tensor: Tensor, storages: StorageReader) -> torch.Tensor:
    import torch

    assert tensor.storage is not None
    made = torch.empty(0, dtype=_dtype(tensor))
    try:
        return made.set_(storages.get(tensor.storage), tensor.offset, tensor.shape, tensor.stride)
    except RuntimeError as error:
        raise DamagedError(
            f"{show_path(tensor.path)} does not fit its storage {tensor.storage.key}: {str(error).splitlines()[0]}"
        ) from error


def _assembled(tensor: Tensor, storages: StorageReader) -> torch.Tensor:
    """A tensor that was saved in pieces: each is copied to where it belongs."""
    import torch

    there = sum([chunk.numel for _, chunk in tensor.chunks])
    if there != tensor.numel:
        raise DamagedError(
            f"{show_path(tensor.path)} has {plural(tensor.numel, 'element')}, but its pieces hold {there:,};"
            " ckptdoctor check says what is missing."
        )
    made = torch.empty(tensor.shape, dtype=_dtype(tensor))
    for start, chunk in tensor.chunks:
        piece = make_tensor(chunk, storages)
        if isinstance(piece, Inert):
            raise DamagedError(f"{show_path(tensor.path)} has a piece that is no plain tensor.")
        place = tuple([slice(first, first + size) for first, size in zip(start, chunk.shape, strict=True)])
        made[place].copy_(piece.detach())
    return made


def _from_pickle(tensor: Tensor, storages: StorageReader, values: memoryview) -> torch.Tensor:
    """A tensor whose values stand in the pickle: of a device without storages, or taken out of the pickle's text."""
    import torch

    made = torch.empty(0, dtype=_dtype(tensor))
    try:
        return made.set_(storages.held(values), tensor.offset, tensor.shape, tensor.stride)
    except RuntimeError as error:
        raise DamagedError(f"{show_path(tensor.path)} does not fit its values: {str(error).splitlines()[0]}") from error


def _meta(tensor: Tensor) -> torch.Tensor:
    """A tensor that was saved without values stays without values."""
    import torch

    return torch.empty_strided(tensor.shape, tensor.stride, dtype=_dtype(tensor), device="meta")


def _sparse_coo(tensor: Tensor, storages: StorageReader) -> torch.Tensor | Inert:
    import torch

    parts: list[Any] = [make_tensor(part, storages) for part in tensor.parts]
    if len(parts) != 2 or any(isinstance(part, Inert) for part in parts):
        return _inert(tensor, storages)
    coalesced = dict(tensor.details).get("coalesced")
    known = None if coalesced is None else bool(coalesced)
    return torch.sparse_coo_tensor(parts[0], parts[1], tensor.shape, is_coalesced=known, check_invariants=True)


def _compressed(tensor: Tensor, storages: StorageReader) -> torch.Tensor | Inert:
    import torch

    parts: list[Any] = [make_tensor(part, storages) for part in tensor.parts]
    if len(parts) != 3 or any(isinstance(part, Inert) for part in parts):
        return _inert(tensor, storages)
    layout = getattr(torch, tensor.layout)
    outer, inner, values = parts
    return torch.sparse_compressed_tensor(outer, inner, values, tensor.shape, layout=layout, check_invariants=True)


def _quantized(tensor: Tensor, storages: StorageReader) -> torch.Tensor | Inert:
    import torch

    details: dict[str, Any] = dict(tensor.details)
    if tensor.storage is None or "scheme" not in details:
        return _inert(tensor, storages)
    dtype = _dtype(tensor)
    parts: list[Any] = [make_tensor(part, storages) for part in tensor.parts]
    if details["scheme"] == "per_tensor_affine":
        made = torch._empty_affine_quantized(
            tensor.shape, scale=details["scale"], zero_point=details["zero_point"], dtype=dtype
        )
    elif len(parts) == 2:
        made = torch._empty_per_channel_affine_quantized(
            tensor.shape, scales=parts[0], zero_points=parts[1], axis=details["axis"], dtype=dtype
        )
    else:
        return _inert(tensor, storages)
    return made.set_(storages.get(tensor.storage), tensor.offset, tensor.shape, tensor.stride)


def _inert(tensor: Tensor, storages: StorageReader) -> Inert:
    state: dict[str, Any] = {"dtype": tensor.dtype.name, "shape": tensor.shape, "layout": tensor.layout}
    state.update(tensor.details)
    parts = [make_tensor(part, storages) for part in tensor.parts]
    return Inert(tensor.subclass or tensor.rebuild, state=state, items=parts)


def _dtype(tensor: Tensor) -> torch.dtype:
    """torch's dtype of this name. Raises DamagedError where this torch has none."""
    import torch

    made = getattr(torch, tensor.dtype.name, None)
    if not isinstance(made, torch.dtype):
        raise DamagedError(
            f"{show_path(tensor.path)} has the dtype {tensor.dtype.name}, which torch {torch.__version__} lacks;"
            " a newer torch may load it."
        )
    return made
