"""Whether the indices of sparse tensors lie inside of them: torch does not look unless it is told to.

Source: ``torch._utils._validate_loaded_sparse_tensors``, and the invariants of ``torch.sparse``. Indices are read in
chunks, so that memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.loading.tensors import COMPRESSED_LAYOUTS
from ckptdoctor.values.bytes import Bytes
from ckptdoctor.values.strips import strips

if TYPE_CHECKING:
    import torch

SPARSE = ("sparse_coo", *COMPRESSED_LAYOUTS)
_BY_ROW = ("sparse_csr", "sparse_bsr")
_BLOCKS = ("sparse_bsr", "sparse_bsc")


def stray(tensor: Tensor, source: Bytes) -> str:
    """What is wrong with the indices of a sparse tensor; "" where nothing is. Raises what reading them raises."""
    troubles = _coo(tensor, source) if tensor.layout == "sparse_coo" else _compressed(tensor, source)
    return next(troubles, "")


def _coo(tensor: Tensor, source: Bytes) -> Iterator[str]:
    """One row of indices for each sparse dimension."""
    indices = tensor.parts[0]
    if len(indices.shape) != 2 or indices.shape[0] > len(tensor.shape):
        yield f"its indices have the shape {list(indices.shape)}"
        return
    for dim in range(indices.shape[0]):
        start = indices.offset + dim * indices.stride[0]
        row = replace(indices, shape=indices.shape[1:], stride=indices.stride[1:], offset=start)
        yield from _outside(row, source, tensor.shape[dim], f"dimension {dim}")


def _compressed(tensor: Tensor, source: Bytes) -> Iterator[str]:
    """Where each row or column begins among the entries, and at which column or row each entry is."""
    lines, others, values = tensor.parts
    height, width = values.shape[-2:] if tensor.layout in _BLOCKS and len(values.shape) > 2 else (1, 1)
    rows, columns = tensor.shape[-2] // max(1, height), tensor.shape[-1] // max(1, width)
    line, other = ("rows", "columns") if tensor.layout in _BY_ROW else ("columns", "rows")
    count, limit = (rows, columns) if tensor.layout in _BY_ROW else (columns, rows)
    if not lines.shape or lines.shape[-1] != count + 1:
        yield f"it has {count:,} {line}, and says of another number where they begin"
        return
    entries = others.shape[-1] if others.shape else 0
    yield from _outside(lines, source, entries + 1, f"where its {line} begin")
    if len(lines.shape) == 1 and not _is_rising(lines, source, entries):
        yield f"its {line} do not follow one another"
    yield from _outside(others, source, limit, f"its {other}")


def _outside(indices: Tensor, source: Bytes, limit: int, what: str) -> Iterator[str]:
    for chunk in _chunks(indices, source):
        for index in (int(chunk.min()), int(chunk.max())):
            if not 0 <= index < limit:
                yield (
                    f"the index {index:,} of {what} is not below {limit:,}"
                    if index >= 0
                    else (f"the index {index:,} of {what} is negative")
                )


def _is_rising(lines: Tensor, source: Bytes, entries: int) -> bool:
    """Whether the beginnings go from nothing to all entries, and never back."""
    last = 0
    for number, chunk in enumerate(_chunks(lines, source)):
        first = int(chunk[0])
        if first < last or (not number and first) or not bool((chunk[1:] >= chunk[:-1]).all()):
            return False
        last = int(chunk[-1])
    return last == entries


def _chunks(indices: Tensor, source: Bytes) -> Iterator[torch.Tensor]:
    """The indices that are not empty, in chunks."""
    for strip in strips(indices, source):
        for chunk in strip.read(0, strip.count):
            if chunk.numel():
                yield chunk
