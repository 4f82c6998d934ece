"""The measurements of a tensor become the numbers that rules and reports read.

Among them are the narrower dtypes that hold every value exactly, and the rows that repeat an earlier one.
"""

from __future__ import annotations

from collections import Counter
from math import frexp, isfinite, nan, sqrt
from typing import TYPE_CHECKING

import numpy as np

from ckptdoctor.casting.arrays import Array, widened
from ckptdoctor.casting.cast import cast_array
from ckptdoctor.values.partial import Partial
from ckptdoctor.values.statistics import Histogram, TensorValues

if TYPE_CHECKING:
    _Counts = tuple[Counter[int], Counter[int]]


SAMPLE = 4096  # values that a histogram is made of, evenly spaced
BINS = 32
_FEW = 64  # values that plain Python is faster with


def summed_up(
    partial: Partial,
    weight: int = 1,
    fits: tuple[str, ...] = (),
    duplicated_rows: int | None = None,
    *,
    sums: bool = True,
) -> TensorValues:
    """Return the numbers of a tensor; each value that was looked at stands for ``weight`` elements.

    Without ``sums`` those were not worked out, nor were zeros among other values.
    """
    if not sums and partial.finite:
        return TensorValues(
            *_counts(partial, weight)[:-1],
            zeros=weight * partial.count if partial.zeros == partial.count else 0,
            min=partial.min,
            max=partial.max,
            mean=nan,
            std=nan,
            absmax=max(partial.max, -partial.min),
            norm=nan,
            fits=fits,
            histogram=_histogram(partial, weight) if _is_telling(partial) else None,
        )
    if not partial.finite:
        return TensorValues(*_counts(partial, weight), fits=fits, duplicated_rows=duplicated_rows)
    return TensorValues(
        *_counts(partial, weight),
        min=partial.min,
        max=partial.max,
        mean=min(max(partial.mean, partial.min), partial.max),
        std=partial.std,
        absmax=max(partial.max, -partial.min),
        norm=sqrt(partial.squares * weight),
        fits=fits,
        histogram=_histogram(partial, weight),
        duplicated_rows=duplicated_rows,
    )


_HUGE = 2.0**20  # values from here on may lie beside tiny ones
_LIKE = 1.02  # times as far from zero as the least value the greatest one may be, where both are ends of one range


def _is_telling(partial: Partial) -> bool:
    """Return whether the extremes allow what rules ask a histogram: values of all sizes, or evenly spread ones."""
    ends = sorted([abs(partial.min), abs(partial.max)])
    return ends[1] >= _HUGE or (partial.min < 0 < partial.max and ends[1] <= _LIKE * ends[0])


def _counts(partial: Partial, weight: int) -> tuple[int, int, int, int, int]:
    counts = partial.count, partial.nan, partial.positive_inf, partial.negative_inf, partial.zeros
    return tuple([weight * each for each in counts])  # type: ignore[return-value]  # five in, five out


def step_of(count: int) -> int:
    """Return the distance between the values of a sample of ``count`` values."""
    return max(1, -(-count // SAMPLE))


def _histogram(partial: Partial, weight: int) -> Histogram | None:
    size = sum([each.size for each in partial.sample])
    if not size:
        return None
    low, high = partial.min, partial.max
    width = high / BINS - low / BINS
    edges = (*[low + width * number for number in range(BINS)], high) if width > 0 else (low, high)
    counts, sizes = (_counted_few if size <= _FEW else _counted)(partial, low, width)
    sampled = partial.finite > sum(counts.values()) or weight > 1
    return Histogram(edges, tuple([counts[at] for at in range(len(edges) - 1)]), sampled, tuple(sorted(sizes.items())))


def _counted_few(partial: Partial, low: float, width: float) -> _Counts:
    """Return the number of finite values in each bin, and with each exponent; for a few, plain Python is faster."""
    values = [float(each) for part in partial.sample for each in part.tolist()]
    values = [each for each in values if isfinite(each)]
    # halved: the largest float64 minus the smallest would be infinite
    half = [each / 2 - low / 2 for each in values]
    places = [min(BINS - 1, int(each / (width / 2))) for each in half] if width / 2 > 0 else [0] * len(values)
    return Counter(places), Counter([frexp(each)[1] for each in values if each])


def _counted(partial: Partial, low: float, width: float) -> _Counts:
    values = np.concatenate(partial.sample).astype(np.float64)
    if partial.finite < partial.count:
        values = values[np.isfinite(values)]
    _, exponents = np.frexp(values)  # 0 for a zero, as for what lies in [0.5, 1)
    halves = values / 2 - low / 2
    places = np.clip(halves / (width / 2), 0, BINS - 1) if width / 2 > 0 else np.zeros_like(values)
    counts = Counter(dict(enumerate(np.bincount(places.astype(np.int64)).tolist())))
    if not exponents.size:
        return counts, Counter()
    least = int(exponents.min())
    sizes = Counter(dict(enumerate(np.bincount(exponents - least).tolist(), least)))
    sizes[0] -= values.size - int(np.count_nonzero(values))
    return counts, +sizes


MOST = 256 << 10  # bytes of the largest tensor that is looked at: more would take longer than all the rest


def duplicated_rows(values: Array, shape: tuple[int, ...]) -> int | None:
    """Return how many rows of a contiguous tensor equal an earlier one; None where none do, or it is large."""
    size = values.nbytes
    if len(shape) < 2 or shape[0] < 2 or not 0 < size <= MOST:
        return None
    data = values.tobytes()
    length = size // shape[0]
    return shape[0] - len({data[at : at + length] for at in range(0, size, length)})


_FLOATS = {
    "float64": ("float32", "bfloat16", "float16"),
    "float32": ("bfloat16", "float16"),
    "bfloat16": ("float8_e4m3fn", "float8_e5m2"),
    "float16": ("float8_e4m3fn", "float8_e5m2"),
}
_INTEGERS = {
    "int64": ("int32", "int16", "int8", "uint8"),
    "int32": ("int16", "int8", "uint8"),
    "int16": ("int8", "uint8"),
    "uint64": ("uint32", "uint16", "uint8"),
    "uint32": ("uint16", "uint8"),
    "uint16": ("uint8",),
}
_FIRST = 512  # values that are tried before the rest of a chunk is
# the last bits of a number, which none of the narrower dtypes has room for
_LOST_BY_ALL = {"float64": (np.uint64, 0x1FFFFFFF), "float32": (np.uint32, 0x1FFF)}


class Narrowing:
    """The candidates of one tensor: most are out after its first values, and are not tried again."""

    def __init__(self, dtype: str) -> None:
        self.left = list(_FLOATS.get(dtype, ()))
        self._integers = _INTEGERS.get(dtype, ())

    def add(self, chunk: Array, dtype: str) -> None:
        """Strike out the dtypes that do not hold every value of a chunk; NaN is held by none."""
        if dtype in _LOST_BY_ALL:
            kind, lost = _LOST_BY_ALL[dtype]
            seen = int(np.bitwise_or.reduce(chunk[:_FIRST].view(kind)))
            if seen & lost:
                self.left.clear()
                return
            if not seen and (chunk.size <= _FIRST or not chunk[_FIRST:].view(kind).any()):
                return  # nothing but zeros, which all of them hold
        for name in tuple(self.left):
            held = _held(widened(chunk[:_FIRST], dtype), name)
            if held and chunk.size > _FIRST:
                held = _held(widened(chunk[_FIRST:], dtype), name)
            if not held and name in self.left:
                self.left.remove(name)

    def result(self, partial: Partial) -> tuple[str, ...]:
        """Return the names that are left."""
        if not partial.count:
            return ()
        if self._integers and isfinite(partial.min) and max(partial.max, -partial.min) <= 2.0**53:
            return tuple([name for name in self._integers if _in_range(partial, name)])
        return tuple(self.left)


def _held(values: Array, name: str) -> bool:
    """Return whether every one of these numbers of float32 or float64 is a number of a narrower dtype."""
    with np.errstate(all="ignore"):  # what is too large becomes infinite, and is another number
        single = values.astype(np.float32, copy=False)
        if single is not values and not np.array_equal(single, values):
            return False
        if name == "float32":
            return True
        if name in _LOST and abs(float(single.max())) <= 65504 >= abs(float(single.min())):  # neither NaN nor infinite
            return _is_held_by_half(single, name)
        back = widened(cast_array(single, "float32", name), name)
        return bool((back == single).all())


_LOST = {"bfloat16": 0xFFFF, "float16": 0x1FFF}  # the bits of a float32 that a half has no room for


def _is_held_by_half(single: Array, name: str) -> bool:
    """Return the same of numbers that are in its range: the numbers of float16 next to 0 are 2**-24 apart."""
    if (single.view(np.uint32) & np.uint32(_LOST[name])).any():
        return False
    if name == "bfloat16":
        return True
    steps = single * np.float32(2.0**24)
    return bool((np.trunc(steps) == steps).all())


def _in_range(partial: Partial, name: str) -> bool:
    limits = np.iinfo(name)
    return bool(limits.min <= partial.min and partial.max <= limits.max)
