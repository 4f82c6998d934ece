"""Statistics as people read them, and sums of several tensors."""

from __future__ import annotations

import math

import pytest

from ckptdoctor.rendering.value_numbers import BLOCKS, Total, number, share, sparkline
from ckptdoctor.values.statistics import Histogram, TensorValues


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (512.0, "512"), (-0.01324, "-0.0132"), (1.2345e-7, "1.23e-7"), (1e30, "1e30"), (math.inf, "inf")],
)
def test_numbers(value, text):
    """Three digits, or a whole number as it is."""
    assert number(value) == text


@pytest.mark.parametrize(
    ("part", "text"),
    [(0, "0"), (1, "<0.1 %"), (1_234, "1.2 %"), (50_000, "50 %"), (99_999, ">99 %"), (100_000, "100 %")],
)
def test_shares(part, text):
    """All is said only of all, none only of none."""
    assert share(part, 100_000) == text


def test_pictures():
    """Bins are put together; what is there at all can be seen, and what is not is empty."""
    histogram = Histogram(tuple(range(33)), (1, 0, *[0] * 29, 1_000), sampled=False)
    assert sparkline(histogram, 8) == f"{BLOCKS[0]}      {BLOCKS[-1]}"
    assert sparkline(histogram, 8, plain=True) == ".      @"
    assert sparkline(None, 8) == sparkline(Histogram((1.0, 1.0), (5,), sampled=False), 8) == ""


def test_totals_are_those_of_all_values():
    """Mean, std and norm as of one tensor; tied tensors once, and those without finite values change nothing."""
    a = TensorValues(2, min=1, max=3, mean=2, std=1, absmax=3, norm=math.sqrt(10))
    b = TensorValues(3, zeros=1, min=0, max=8, mean=4, std=math.sqrt(32 / 3), absmax=8, norm=math.sqrt(80))
    total = Total()
    for each in (a, b, b, TensorValues(5, nan=5)):
        total.add(each)
    values = [1, 3, 0, 4, 8]
    assert (total.tensors, total.count, total.nan, total.zeros, total.min, total.max) == (3, 10, 5, 1, 0, 8)
    assert total.mean == pytest.approx(3.2)
    assert total.std == pytest.approx(math.sqrt(sum((each - 3.2) ** 2 for each in values) / 5))
    assert total.norm == pytest.approx(math.sqrt(90))


def test_totals_of_huge_values_are_infinite_and_not_no_number():
    """Their mean is what it is."""
    total = Total()
    means = (1.5e308, -1.5e308, 1.5e308)
    for each in [TensorValues(2, min=mean, max=mean, mean=mean, absmax=abs(mean), norm=math.inf) for mean in means]:
        total.add(each)
    assert total.std == total.norm == math.inf
    assert total.mean == pytest.approx(0.5e308)
