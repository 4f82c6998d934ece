"""Round numbers for an axis."""

from __future__ import annotations

from math import ceil, floor, log10


def ticks(low: float, high: float, about: int = 5, finest: float = 0.0) -> list[float]:
    """About so many round numbers, evenly spaced, from at most ``low`` to at least ``high``; always two or more.

    They are multiples of 1, 2 or 5 times a power of ten, and not closer together than ``finest``.
    """
    # neighbours must be different numbers, also far from zero
    span = max(high - low, finest, abs(low) * 1e-9, abs(high) * 1e-9, 1e-9)
    power = 10.0 ** floor(log10(span / about))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit * about >= span * 0.999)
    step = max(step, finest)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, max(last, first + 1) + 1)]
