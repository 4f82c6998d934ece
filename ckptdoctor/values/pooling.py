"""Tables of numbers made smaller, to be drawn: each cell is the mean, or the largest by size, of what lies in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.facts.looks import Picture

if TYPE_CHECKING:
    import torch


def pooled(
    table: torch.Tensor, whole: tuple[int, int], most: tuple[int, int], how: str, sampled: bool = False
) -> Picture:
    """A table of some of the rows and columns of ``whole``, in at most ``most`` rows and columns of cells."""
    if not table.numel() or not min(most):
        return Picture((), 1.0, 1.0, how)
    down, across = -(-table.shape[0] // most[0]), -(-table.shape[1] // most[1])
    cells = tuple([tuple(row) for row in _smaller(table, down, across, how).tolist()])
    return Picture(cells, down * whole[0] / table.shape[0], across * whole[1] / table.shape[1], how, sampled)


def wrapped(values: torch.Tensor, whole: int, most: tuple[int, int], how: str, sampled: bool = False) -> Picture:
    """Numbers of one dimension, written in lines from left to right."""
    count = values.numel()
    if not count or not min(most):
        return Picture((), 1.0, 1.0, how)
    across = -(-count // (most[0] * most[1]))  # elements in a cell
    row: list[float | None] = _smaller(values.view(1, -1), 1, across, how)[0].tolist()
    columns = min(len(row), _columns(len(row), most))
    row += [None] * (-len(row) % columns)
    lines = [tuple(row[at : at + columns]) for at in range(0, len(row), columns)]
    return Picture(tuple(lines), 1.0, across * whole / count, how, sampled)


def _columns(cells: int, most: tuple[int, int]) -> int:
    """Cells in a line, so that each can be drawn as large as possible."""
    for times in range(8, 1, -1):
        if (most[0] // times) * (most[1] // times) >= cells:
            return most[1] // times
    return most[1]


def _smaller(table: torch.Tensor, down: int, across: int, how: str) -> torch.Tensor:
    """So many rows and columns put together; what is left over at the ends is a cell as well."""
    from torch.nn.functional import avg_pool2d, max_pool2d

    numbers, cell = _float(table), (down, across)
    if cell == (1, 1):
        return numbers
    image = numbers[None, None]
    if how == "mean":
        return avg_pool2d(image, cell, ceil_mode=True, count_include_pad=False)[0, 0]
    high: torch.Tensor = max_pool2d(image, cell, ceil_mode=True)[0, 0]
    low = -max_pool2d(-image, cell, ceil_mode=True)[0, 0]
    return high.where(~(high < -low), low)  # what is NaN in one is so in both


def _float(table: torch.Tensor) -> torch.Tensor:
    import torch

    if table.dtype in (torch.float32, torch.float64):
        return table
    return table.double() if table.dtype.itemsize > 2 else table.float()
