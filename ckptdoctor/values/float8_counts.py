"""Of floats of 8 bits it is counted how often each of the 256 occurs, which says everything, exactly."""

from __future__ import annotations

from functools import cache
from math import isfinite, isnan, nan

import numpy as np

from ckptdoctor.casting.arrays import Array, every_float8
from ckptdoctor.values.partial import Partial

_FEW = 1 << 13  # bytes of which a table of pairs takes longer than it saves


def is_counted(dtype: str) -> bool:
    """Return whether a dtype is one of these."""
    return dtype.startswith("float8")


def extremes_of_counted(chunk: Array, dtype: str) -> tuple[float, float]:
    """Return the smallest and the largest number of a chunk; NaN where one of its numbers may be NaN or infinite.

    A byte occurs only if it is between the extremes, taken for integers with and without a sign. Those of healthy
    tensors leave no room for NaN or infinity; and they are the extremes of the numbers, in whatever order these are.
    """
    signs = chunk.view(np.int8)
    unsigned, signed = (int(chunk.min()), int(chunk.max())), (int(signs.min()), int(signs.max()))
    for byte in _not_finite(dtype):
        if unsigned[0] <= byte <= unsigned[1] and signed[0] <= byte - 256 * (byte > 127) <= signed[1]:
            return nan, nan
    found = [_numbers(dtype)[byte & 0xFF] for byte in (*unsigned, *signed)]
    return min(found), max(found)


def add_counted(chunk: Array, dtype: str, partial: Partial) -> None:
    """Count in all that there is to know."""
    partial.count += chunk.size
    counts = _take_out(_counts(chunk, dtype), partial)
    total = sum(counts.values())
    if not total:
        return
    partial.zeros += counts.get(0.0, 0)
    partial.min, partial.max = min(partial.min, *counts), max(partial.max, *counts)
    mean = sum([value * count for value, count in counts.items()]) / total
    spread = sum([(value - mean) ** 2 * count for value, count in counts.items()])
    partial.add_moments(total, mean, spread, sum([value * value * count for value, count in counts.items()]))


def _counts(chunk: Array, dtype: str) -> list[tuple[float, int]]:
    """Return each number that occurs, and how often; zeros of both signs, and NaNs of several, apart."""
    return [(value, count) for value, count in zip(_numbers(dtype), _occurrences(chunk), strict=True) if count]


def _occurrences(chunk: Array) -> list[int]:
    """Return how often each of the 256 bytes occurs: two at a time, which takes half as long."""
    paired = len(chunk) // 2 * 2 if len(chunk) >= _FEW else 0
    counts = np.bincount(chunk[paired:], minlength=256)
    if paired:
        pairs = np.bincount(chunk[:paired].view(np.uint16), minlength=1 << 16).reshape(256, 256)
        counts = counts + pairs.sum(0) + pairs.sum(1)
    found: list[int] = counts.tolist()
    return found


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
def _not_finite(dtype: str) -> tuple[int, ...]:
    """Return the bytes that stand for NaN or an infinity."""
    return tuple([byte for byte, value in enumerate(_numbers(dtype)) if not isfinite(value)])


@cache
def _numbers(dtype: str) -> tuple[float, ...]:
    """Return the number that each byte stands for."""
    return tuple(every_float8(dtype).tolist())
