"""What casting loses is counted exactly."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from ckptdoctor.casting.loss import Loss, loss_of
from tests.casting.test_cast import data_of


def loss(values: list[float], target: str, source: str = "float32") -> Loss:
    return loss_of([data_of(torch.tensor(values, dtype=getattr(torch, source)))], source, target)


def test_exact_values_lose_nothing():
    """NaN, infinities and zeros of either sign among them."""
    values = [0.0, -0.0, 1.0, 0.5, float("nan"), float("inf"), float("-inf")]
    assert loss(values, "bfloat16") == Loss(values=7)


def test_rounding():
    """The largest relative error is that of the worst value."""
    found = loss([1.0, 1.0 + 2**-9, 3.0], "bfloat16")
    assert (found.values, found.changed, found.infinite, found.zero) == (3, 1, 0, 0)
    assert found.relative == pytest.approx(2**-9 / (1 + 2**-9))


def test_overflow_and_underflow():
    """Values that become infinite and 0 are told apart, and do not count as errors."""
    found = loss([1e5, -2e6, 1e-10, 0.0, 0.1, float("inf"), float("nan")], "float16")
    assert (found.values, found.changed, found.infinite, found.zero, found.largest) == (7, 4, 2, 1, 2e6)
    assert 0 < found.relative < 1e-3


@given(st.lists(st.floats(width=32), min_size=1, max_size=40), st.sampled_from(["float16", "bfloat16"]))
def test_counts_are_those_of_a_plain_loop(values, target):
    """One value after another, with torch."""
    found = loss(values, target)
    backs = [torch.tensor(each).to(getattr(torch, target)).float().item() for each in values]
    pairs = [(one, other) for one, other in zip(values, backs, strict=True) if one == one]
    assert found.changed == sum(one != other for one, other in pairs)
    assert found.zero == sum(other == 0 != one for one, other in pairs)
    assert found.infinite == sum(abs(other) == float("inf") != abs(one) for one, other in pairs)
