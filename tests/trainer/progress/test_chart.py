"""Round numbers for an axis."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptdoctor.trainer.progress.chart import ticks


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.31, 0.96, [0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 3814, [0, 1000, 2000, 3000, 4000]),
        (2.3, 2.3, None),
    ],
)
def test_marks_are_round(low, high, marks):
    """Multiples of 1, 2 or 5, that hold the values between them."""
    found = ticks(low, high)
    assert marks is None or found == pytest.approx(marks)
    assert len(found) >= 2


def test_epochs_are_whole():
    """Where marks may not be finer than one, they are whole numbers."""
    assert ticks(1, 3, 6, finest=1) == [1, 2, 3]
    assert all(mark == int(mark) for mark in ticks(1, 2, 6, finest=1))


sizes = st.floats(-1e150, 1e150)


@given(sizes, sizes)
def test_any_range_has_a_handful_of_marks(one, other):
    """From the tiniest to the most absurd range: a few marks, in order, all different, around the values."""
    low, high = sorted((one, other))
    found = ticks(low, high)
    assert 2 <= len(found) <= 12
    assert found == sorted(set(found))
    slack = max(abs(low), abs(high), 1) * 1e-8
    assert found[0] <= low + slack
    assert found[-1] >= high - slack
