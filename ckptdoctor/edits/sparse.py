"""Describes what sparse tensors are made of, and the dense ones that they stand for, by their shapes alone.

Sources: ``torch.sparse`` and ``torch._utils._rebuild_sparse_tensor``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ckptdoctor.checkpoint import DType, Tensor
from ckptdoctor.edits.elements import Elements, Scattered, Shape
from ckptdoctor.errors import RefusedError

COO = "sparse_coo"
BY_ROW, BY_COLUMN = ("sparse_csr", "sparse_bsr"), ("sparse_csc", "sparse_bsc")
LAYOUTS = (COO, *BY_ROW, *BY_COLUMN)

_MOST = 1 << 23  # entries that are put in their places: their numbers are held in memory
_HELD = 256 << 20  # bytes of the values, which are as well
_INDICES = ("int64", "int32")


def can_be_dense(tensor: Tensor) -> bool:
    """Return whether it is a sparse tensor whose dense one is plain to tell, as far as headers show."""
    parts = [(part.dtype, part.shape) for part in tensor.parts]
    plain = tensor.layout in LAYOUTS and tensor.subclass is None and not tensor.moved and tensor.storage is None
    alone = all(part.storage is not None and part.layout == "strided" and not part.parts for part in tensor.parts)
    return (
        plain
        and alone
        and _fault(tensor.layout, tensor.shape, parts) == ""
        and ("coalesced", False) not in tensor.details
    )


def scattered(layout: str, shape: Shape, given: Sequence[tuple[DType, Elements]], name: str) -> Scattered:
    """Return the dense elements of a tensor with these parts: its indices, and last its values. Raises RefusedError."""
    fault = _fault(layout, shape, [(dtype, part.shape) for dtype, part in given])
    if fault:
        raise RefusedError(f"{name} {fault}, so it is not made dense.")
    kinds = tuple([dtype.name for dtype, _ in given[:-1]])
    return Scattered(layout, tuple([part for _, part in given]), kinds, given[-1][0].bits // 8, shape)


def _fault(layout: str, shape: Shape, parts: Sequence[tuple[DType, Shape]]) -> str:
    """Return what is odd about it, or "" for nothing."""
    if layout not in LAYOUTS or len(parts) != (2 if layout == COO else 3):
        return "has an unknown sparse layout"
    *indices, (dtype, values) = parts
    if any(kind.name not in _INDICES for kind, _ in indices) or dtype.kind == "quantized" or dtype.bits % 8:
        return "has indices or values of an odd dtype"
    if dtype.kind == "float" and dtype.mantissa == 0:
        return "has values of a dtype without a zero"
    fits = _fits_coo(shape, indices[0][1], values) if layout == COO else _fits_lines(layout, shape, parts)
    if not fits:
        return "has inconsistent parts"
    if prod(values) > _MOST or prod(values) * dtype.bits // 8 > _HELD:
        return f"has more than {_MOST:,} entries"
    return ""


def _fits_coo(shape: Shape, indices: Shape, values: Shape) -> bool:
    whole = len(indices) == 2 and len(values) >= 1 and indices[1] == values[0]
    return whole and 0 < indices[0] <= len(shape) and values[1:] == shape[indices[0] :]


def _fits_lines(layout: str, shape: Shape, parts: Sequence[tuple[DType, Shape]]) -> bool:
    """Return whether they are those of one matrix: of several of them, torch keeps indices with more dimensions."""
    (_, lines), (_, places), (_, values) = parts
    blocks = values[1:] if layout in ("sparse_bsr", "sparse_bsc") else (1, 1)
    sizes = len(shape) == 2 and len(lines) == len(places) == 1 and len(blocks) == 2 and 0 not in blocks
    if not sizes or len(values) != (3 if layout in ("sparse_bsr", "sparse_bsc") else 1) or places[0] != values[0]:
        return False
    if any(size % block for size, block in zip(shape, blocks, strict=True)):
        return False
    along = 0 if layout in BY_ROW else 1
    return lines[0] == shape[along] // blocks[along] + 1
