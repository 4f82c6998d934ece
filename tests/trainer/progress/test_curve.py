"""The plot of a curve in a terminal."""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan, sin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.trainer.progress.bars import draw
from tests.trainer.progress.runs import golden
from tests.work import counted

WAVE = [0.5 + 0.4 * sin(index / 60) for index in range(1000)]  # its range shows within the first 400
CASES = {
    "none": [],
    "one": [0.5],
    "two": [0.2, 0.8],
    "ten": [0.31, 0.52, 0.66, 0.71, 0.78, 0.8, 0.79, 0.83, 0.84, 0.84],
    "thousand": WAVE,
    "flat": [0.9] * 5,
    "full": [1.0, 1.0],
    "close": [0.9512, 0.9533, 0.9541],
    "gap": [0.1, nan, inf, 0.4, 0.5],
}


@pytest.mark.parametrize("plain", [False, True], ids=["braille", "ascii"])
def test_the_curve_looks_as_it_should(plain):
    """No value, one, two, a thousand, equal ones, close ones and missing ones give the pictures on file."""
    pictures = [f"{name}\n" + "\n".join(draw(values, 44, 7, ascii_only=plain)) for name, values in CASES.items()]
    golden("curve_ascii.txt" if plain else "curve.txt", "\n\n".join(pictures))


values = st.lists(st.floats(), max_size=300)


@settings(deadline=None)
@given(values, st.integers(-3, 120), st.integers(-3, 40), st.integers(0, 400), st.booleans())
def test_any_values_fit_into_any_box(numbers, width, height, total, plain):
    """Whatever the values and the size, there are ``height`` lines, and none is wider than ``width``."""
    lines = draw(numbers, width, height, total=total, ascii_only=plain)
    assert len(lines) == max(height, 0)
    assert all(len(line) <= max(width, 0) for line in lines)
    assert not plain or "".join(lines).isascii()


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=200), st.integers(12, 80), st.integers(1, 20))
def test_a_curve_has_no_holes(numbers, width, height):
    """Every column between the first and the last dot has a dot, and neighbouring columns touch."""
    lines = draw(numbers, width, height, ascii_only=True)
    columns = [
        {row for row, line in enumerate(lines) if line[column : column + 1] == "*"}
        for column in range(max(map(len, lines)))
    ]
    dotted = [rows for rows in columns if rows]
    assert dotted
    first = columns.index(dotted[0])
    assert columns[first : first + len(dotted)] == dotted
    for left, right in pairwise(dotted):
        assert min(abs(a - b) for a in left for b in right) <= 1


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_the_axis_holds_the_values(numbers):
    """The labels are percentages between 0 and 100, and all values lie between the lowest and the highest."""
    labels = [float(line.split("%")[0]) for line in draw(numbers, 40, 9) if "%" in line]
    assert labels == sorted(labels, reverse=True)
    assert 0 <= labels[-1] <= 100 * min(numbers) + 1e-9
    assert 100 * max(numbers) - 1e-9 <= labels[0] <= 100


def test_braille_draws_where_the_value_is():
    """The lowest value is the lowest left dot of the lowest cell, the highest the highest right one of the highest."""
    lines = draw([0.0, 1.0], 20, 4)
    assert ord(lines[-1][7]) & 0x40
    assert ord(lines[0][-1]) & 0x08
    assert len(lines[0]) == 20


def test_a_growing_curve_keeps_its_place():
    """With the total known, the first values are drawn at the left, just as it will be at the end."""
    half, whole = (draw(numbers, 60, 7, total=1000, ascii_only=True) for numbers in (WAVE[:400], WAVE))
    assert max(map(len, half)) <= 8 + 21
    assert half == [line[:29].rstrip() for line in whole]


def test_a_long_curve_is_fast():
    """A hundred thousand values take a dozen calls of functions each."""
    _, calls = counted(draw, WAVE * 100, 80, 9)
    assert calls / len(WAVE * 100) < 12
