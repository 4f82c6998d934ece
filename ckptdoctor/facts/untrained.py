"""Which weights are as ``torch.nn`` makes them, before the first step of any training."""

from __future__ import annotations

from math import prod, sqrt
from struct import pack, unpack

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.facts.values import Histogram, TensorValues

_ENOUGH = 1024  # values of which some always come close to the ends of the range
_CLOSE = 0.99  # of the range: with 1,024 even values, chance leaves them short of it once in 30,000 times
_UNEVEN = 1.6  # chi-squared per degree of freedom; of 31 degrees, chance gives more once in 50 weights


def is_fresh(tensor: Tensor, values: TensorValues) -> bool:
    """Whether the values fill the range of ``kaiming_uniform_(a=√5)`` exactly and evenly.

    That is what ``reset_parameters`` of Linear and of the convolutions does: evenly between ±1/√fan_in.
    """
    fan_in = prod(tensor.shape[1:])
    if values.count < _ENOUGH or values.finite != values.count or not fan_in or values.histogram is None:
        return False
    bound = 1 / sqrt(fan_in)
    most = _rounded(bound, tensor.dtype.name) * (1 + 1e-6)
    if not (bound * _CLOSE <= values.max <= most and bound * _CLOSE <= -values.min <= most):
        return False
    return _is_even(values.histogram)


def _rounded(bound: float, dtype: str) -> float:
    """The end of the range as a narrow dtype has it: a step further, and it was trained."""
    if dtype == "float16":
        return float(unpack("<e", pack("<e", bound))[0])
    if dtype == "bfloat16":  # the upper half of a float32, rounded to even
        (bits,) = unpack("<I", pack("<f", bound))
        return float(unpack("<f", pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000))[0])
    return bound


def _is_even(histogram: Histogram) -> bool:
    total = sum(histogram.counts)
    bins = len(histogram.counts)
    if total < _ENOUGH or bins < 2:
        return False
    expected = total / bins
    return sum((count - expected) ** 2 / expected for count in histogram.counts) / (bins - 1) < _UNEVEN
