"""The sum of values and of their squares in float32, of floats of 16 bits without widening them first.

No reduction of torch gives a float32 for a bfloat16 without writing all values as float32 first. One kernel does: what
a group norm works out of the gradient of its weight and bias are, for each row, the sum of the products of two tensors
and the sum of one of them, added up in float32 while both are read. For twice the same tensor, a mean of 0 and a
deviation of 1 those are the squares and the values.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_ROW = 1024  # values: the sums of longer rows lose digits, those of shorter ones take longer
_FEW = 1 << 13  # values that are added up faster in other ways


def sums_by_rows(values: torch.Tensor) -> tuple[float, float, int] | None:
    """The sum and the sum of squares of the first values, and how many those are; None where this is not the way."""
    import torch

    if values.element_size() != 2 or values.numel() < _FEW or not _is_right(values.dtype):
        return None
    count = values.numel() // _ROW
    total, squares = _by_rows(values[: count * _ROW].view(1, count, _ROW))
    both = [each.sum(dtype=torch.float64).item() for each in (total, squares)]
    return both[0], both[1], count * _ROW


def _by_rows(table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    _, count, row = table.shape
    mean, deviation, weight = _constants(count)
    _, squares, total = torch.ops.aten.native_group_norm_backward(
        table, table, mean, deviation, weight, 1, count, row, 1, [False, True, True]
    )
    return total, squares


@cache
def _is_right(dtype: torch.dtype) -> bool:
    """Whether this torch knows the way for a dtype, tried once on numbers whose sums are known."""
    import torch

    numbers = (torch.arange(4 * _ROW) % 7 - 2).view(1, 4, _ROW)
    try:
        total, squares = _by_rows(numbers.to(dtype))
    except RuntimeError:  # an older one wants all of one dtype, whose sums would be rounded
        return False
    right = torch.equal(total.double(), numbers[0].sum(1).double())
    return total.dtype is torch.float32 and right and torch.equal(squares.double(), (numbers[0] ** 2).sum(1).double())


@cache
def _constants(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    import torch

    return torch.zeros(1, 1), torch.ones(1, 1), torch.ones(count)
