"""Floats of 8 bits: how often each of the 256 occurs says everything, exactly, and converting them takes longer."""

from __future__ import annotations

from functools import cache
from math import isfinite, isnan
from typing import TYPE_CHECKING

from ckptdoctor.values.partial import Partial

if TYPE_CHECKING:
    import torch


@cache
def is_counted(dtype: torch.dtype) -> bool:
    """Whether a dtype is one of these."""
    return str(dtype).startswith("torch.float8")


def scan_counted(chunk: torch.Tensor, partial: Partial) -> None:
    """Count the NaNs and infinities of a chunk.

    A byte occurs only if it lies between the extremes, taken for integers with and without a sign. Those of healthy
    tensors leave no room for NaN or infinity, and nothing has to be counted.
    """
    import torch

    partial.count += chunk.numel()
    unsigned = [int(each.item()) for each in torch.aminmax(chunk.view(torch.uint8))]
    signed = [int(each.item()) for each in torch.aminmax(chunk.view(torch.int8))]
    for byte in _not_finite(chunk.dtype):
        if unsigned[0] <= byte <= unsigned[1] and signed[0] <= byte - 256 * (byte > 127) <= signed[1]:
            _take_out(_counts(chunk), partial)
            return


def add_counted(chunk: torch.Tensor, partial: Partial) -> None:
    """Count in all that there is to know."""
    partial.count += chunk.numel()
    counts = _take_out(_counts(chunk), partial)
    total = sum(counts.values())
    if not total:
        return
    partial.zeros += counts.get(0.0, 0)
    partial.min, partial.max = min(partial.min, *counts), max(partial.max, *counts)
    mean = sum([value * count for value, count in counts.items()]) / total
    spread = sum([(value - mean) ** 2 * count for value, count in counts.items()])
    partial.add_moments(total, mean, spread, sum([value * value * count for value, count in counts.items()]))


def _counts(chunk: torch.Tensor) -> list[tuple[float, int]]:
    """Each number that occurs, and how often; zeros of both signs, and NaNs of several, apart."""
    import torch

    counts = torch.bincount(chunk.view(torch.uint8), minlength=256).tolist()
    return [(value, count) for value, count in zip(_numbers(chunk.dtype), counts, strict=True) if count]


def _take_out(counts: list[tuple[float, int]], partial: Partial) -> dict[float, int]:
    """Count what is not finite; gives the rest."""
    finite: dict[float, int] = {}
    for value, count in counts:
        if isfinite(value):
            finite[value] = finite.get(value, 0) + count
        elif isnan(value):
            partial.nan += count
        elif value > 0:
            partial.positive_inf += count
        else:
            partial.negative_inf += count
    return finite


@cache
def _not_finite(dtype: torch.dtype) -> tuple[int, ...]:
    """The bytes that stand for NaN or an infinity."""
    return tuple([byte for byte, value in enumerate(_numbers(dtype)) if not isfinite(value)])


@cache
def _numbers(dtype: torch.dtype) -> tuple[float, ...]:
    """The number that each byte stands for."""
    import torch

    numbers: list[float] = torch.arange(256, dtype=torch.uint8).view(dtype).float().tolist()
    return tuple(numbers)
