"""Rows of a tensor that repeat an earlier one: embeddings whose rows were copied, experts that are the same."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MOST = 256 << 10  # bytes of the largest tensor that is looked at: more would take longer than all the rest


def duplicated_rows(view: torch.Tensor, shape: tuple[int, ...]) -> int | None:
    """How many rows of a contiguous tensor equal an earlier one; None where there are none, or it is large."""
    size = view.numel() * view.element_size()
    if len(shape) < 2 or shape[0] < 2 or not 0 < size <= MOST:
        return None
    data = ctypes.string_at(view.data_ptr(), size)
    length = size // shape[0]
    return shape[0] - len({data[at : at + length] for at in range(0, size, length)})
