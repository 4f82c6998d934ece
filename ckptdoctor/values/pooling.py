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
    rows, columns = min(most[0], table.shape[0]), min(most[1], table.shape[1])
    if not table.numel() or not rows or not columns:
        return Picture((), 1.0, 1.0, how)
    cells = _smaller(table, rows, columns, how).tolist()
    return Picture(tuple([tuple(row) for row in cells]), whole[0] / rows, whole[1] / columns, how, sampled)


def wrapped(values: torch.Tensor, whole: int, most: tuple[int, int], how: str, sampled: bool = False) -> Picture:
    """Numbers of one dimension, written in lines from left to right."""
    import torch

    count = values.numel()
    if not count:
        return Picture((), 1.0, 1.0, how)
    across = -(-count // (most[0] * most[1]))  # elements in a cell
    cells = -(-count // across)
    columns = min(cells, most[1])
    padded = torch.cat([_float(values), values.new_zeros(cells * across - count, dtype=_float(values[:1]).dtype)])
    row = _smaller(padded.view(1, -1), 1, cells, how)[0].tolist()
    if cells * across > count:
        row[-1] = _smaller(_float(values[(cells - 1) * across :]).view(1, -1), 1, 1, how)[0, 0].item()
    lines = [row[at : at + columns] for at in range(0, cells, columns)]
    lines[-1] += [None] * (columns - len(lines[-1]))
    return Picture(tuple([tuple(line) for line in lines]), 1.0, whole / count * across, how, sampled)


def _smaller(table: torch.Tensor, rows: int, columns: int, how: str) -> torch.Tensor:
    from torch.nn.functional import adaptive_avg_pool2d, adaptive_max_pool2d

    numbers = _float(table)
    if (rows, columns) == tuple(numbers.shape):
        return numbers
    image = numbers[None, None]
    if how == "mean":
        return adaptive_avg_pool2d(image, (rows, columns))[0, 0]
    high = adaptive_max_pool2d(image, (rows, columns))[0, 0]
    low = -adaptive_max_pool2d(-image, (rows, columns))[0, 0]
    return high.where(~(high < -low), low)  # a NaN is larger than nothing, and stays


def _float(table: torch.Tensor) -> torch.Tensor:
    import torch

    if table.dtype in (torch.float32, torch.float64):
        return table
    return table.double() if table.dtype.itemsize > 2 else table.float()
