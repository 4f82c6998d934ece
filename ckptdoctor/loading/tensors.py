"""Tensors that a checkpoint describes become those of torch: same dtype, shape, stride and sharing, on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ckptdoctor.checkpoint import Tensor, show_path
from ckptdoctor.checkpoint.tensor import storage_span
from ckptdoctor.errors import DamagedError
from ckptdoctor.formats.folders.coverage import uncovered
from ckptdoctor.loading.inert import Inert
from ckptdoctor.wording import count, plural

if TYPE_CHECKING:
    import torch

    from ckptdoctor.loading.storages import StorageReader

COMPRESSED_LAYOUTS = ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def make_tensor(tensor: Tensor, storages: StorageReader) -> torch.Tensor | Inert:
    """The tensor with its values. Kinds that only their own class can make come back as ``Inert`` with their parts.

    Raises DamagedError when its bytes are not all there, the view does not fit its storage, or torch cannot have it.
    """
    made = _bare(tensor, storages)
    if isinstance(made, Inert):
        return made
    with _judged_by_torch(tensor):
        return _dressed(tensor, made)


@contextmanager
def _judged_by_torch(tensor: Tensor) -> Iterator[None]:
    """Around calls of torch alone: what it raises for the numbers of a tensor is damage, and says of which."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise _damaged(tensor, f"cannot be a tensor: {said}") from error


def _damaged(tensor: Tensor, what: str) -> DamagedError:
    """The error that names the tensor, and the byte at which its values begin where they are in the file."""
    extent = None if tensor.storage is None else tensor.storage.extent
    return DamagedError(f"{show_path(tensor.path)} {what}", offset=None if extent is None else extent.offset)


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
    return _view(tensor, torch.empty(0, dtype=_dtype(tensor)), storages.get(tensor.storage))


def _view(tensor: Tensor, made: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """``made``, which has no elements yet, as the view of its storage.

    torch lets a storage grow where a view reaches past its end, if it can: the view would show whatever was in memory.
    """
    place = "values" if tensor.storage is None else f"storage {tensor.storage.key}"
    with _judged_by_torch(tensor):
        reach = storage_span(tensor)[1]
        if reach * tensor.dtype.bits > storage.nbytes() * 8 and 0 not in tensor.shape:
            there = storage.nbytes() * 8 // tensor.dtype.bits
            raise _damaged(tensor, f"does not fit its {place}: it reaches to element {count(reach)} of {there:,}")
        return made.set_(storage, tensor.offset, tensor.shape, tensor.stride)


def _assembled(tensor: Tensor, storages: StorageReader) -> torch.Tensor:
    """A tensor that was saved in pieces: each is copied to where it belongs."""
    import torch

    there = sum([chunk.numel for _, chunk in tensor.chunks])
    if there != tensor.numel:
        raise _damaged(
            tensor,
            f"has {plural(tensor.numel, 'element')}, but its pieces hold {there:,};"
            " ckptdoctor check says what is missing.",
        )
    left = uncovered(tensor.shape, [(start, chunk.shape) for start, chunk in tensor.chunks])
    if left:
        raise _damaged(tensor, f"cannot be put together: {left}; ckptdoctor check says what is wrong.")
    dtype = _dtype(tensor)
    with _judged_by_torch(tensor):
        made = torch.empty(tensor.shape, dtype=dtype)
    for start, chunk in tensor.chunks:
        piece = make_tensor(chunk, storages)
        if isinstance(piece, Inert):
            raise _damaged(tensor, "has a piece that is no plain tensor.")
        with _judged_by_torch(tensor):
            place = tuple([slice(first, first + size) for first, size in zip(start, chunk.shape, strict=True)])
            made[place].copy_(piece.detach())
    return made


def _from_pickle(tensor: Tensor, storages: StorageReader, values: memoryview) -> torch.Tensor:
    """A tensor whose values stand in the pickle: of a device without storages, or taken out of the pickle's text."""
    import torch

    return _view(tensor, torch.empty(0, dtype=_dtype(tensor)), storages.held(values))


def _meta(tensor: Tensor) -> torch.Tensor:
    """A tensor that was saved without values stays without values."""
    import torch

    dtype = _dtype(tensor)
    with _judged_by_torch(tensor):
        return torch.empty_strided(tensor.shape, tensor.stride, dtype=dtype, device="meta")


def _sparse_coo(tensor: Tensor, storages: StorageReader) -> torch.Tensor | Inert:
    import torch

    parts: list[Any] = [make_tensor(part, storages) for part in tensor.parts]
    if len(parts) != 2 or any(isinstance(part, Inert) for part in parts):
        return _inert(tensor, storages)
    coalesced = dict(tensor.details).get("coalesced")
    known = None if coalesced is None else bool(coalesced)
    with _judged_by_torch(tensor):
        return torch.sparse_coo_tensor(parts[0], parts[1], tensor.shape, is_coalesced=known, check_invariants=True)


def _compressed(tensor: Tensor, storages: StorageReader) -> torch.Tensor | Inert:
    import torch

    parts: list[Any] = [make_tensor(part, storages) for part in tensor.parts]
    if len(parts) != 3 or any(isinstance(part, Inert) for part in parts):
        return _inert(tensor, storages)
    layout = getattr(torch, tensor.layout)
    outer, inner, values = parts
    with _judged_by_torch(tensor):
        return torch.sparse_compressed_tensor(outer, inner, values, tensor.shape, layout=layout, check_invariants=True)


def _quantized(tensor: Tensor, storages: StorageReader) -> torch.Tensor | Inert:
    import torch

    details: dict[str, Any] = dict(tensor.details)
    if tensor.storage is None or "scheme" not in details:
        return _inert(tensor, storages)
    dtype = _dtype(tensor)
    parts: list[Any] = [make_tensor(part, storages) for part in tensor.parts]
    with _judged_by_torch(tensor):
        # without elements, so that no memory is taken for a shape before the storage is known to have it
        if details["scheme"] == "per_tensor_affine":
            scale, zero_point = details["scale"], details["zero_point"]
            made = torch._empty_affine_quantized((0,), scale=scale, zero_point=zero_point, dtype=dtype)
        elif len(parts) == 2 and not any(isinstance(part, Inert) for part in parts):
            axis = details["axis"]
            if not 0 <= axis < len(tensor.shape) or {part.numel() for part in parts} != {tensor.shape[axis]}:
                # torch makes such a tensor, and reads beside its scales
                raise _damaged(tensor, f"cannot be a tensor: its scales do not fit axis {count(axis)} of its shape")
            empty = [size if index == axis else 0 for index, size in enumerate(tensor.shape)]
            made = torch._empty_per_channel_affine_quantized(
                empty, scales=parts[0], zero_points=parts[1], axis=axis, dtype=dtype
            )
        else:
            return _inert(tensor, storages)
    return _view(tensor, made, storages.get(tensor.storage))


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
        raise _damaged(
            tensor,
            f"has the dtype {tensor.dtype.name}, which torch {torch.__version__} lacks; a newer torch may load it.",
        )
    return made
