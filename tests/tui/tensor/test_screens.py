"""Screens of values at several sizes, held against text files that people have looked at."""

from __future__ import annotations

import pytest

from tests.tui import NARROW, NORMAL, WIDE, screen, screens

MATRIX = ("enter",)


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_preview(size):
    """Below what the headers say: statistics and a small histogram."""
    screen("values_preview", "values.pt", "down", "up", "text:", "tab", "end", size=size)


ON_A_SMALL_SCREEN = {
    "values": MATRIX,  # one view, and the names of the others
    "values_heatmap": ("2",),  # each view has all of it
    "values_histogram": ("3",),
    "values_extremes": ("4",),
    "values_counts": ("1", "s"),  # logarithmic counts
    "values_sizes": ("s",),  # powers of two
    "values_index": ("s", "1", "i", "9", "enter"),  # the line to type an index in, with what is wrong below
}
SIDE_BY_SIDE = {
    "values": MATRIX,  # everything
    # the next slice of four dimensions, with the value under the cursor in the border
    "values_conv": ("escape", "down", "enter", "right_square_bracket", "r", "down"),
    # what has one dimension wraps, with round numbers at the left
    "values_line": ("escape", "down", "enter", "right", "down"),
}


@pytest.mark.parametrize(
    ("size", "stages"),
    [(NARROW, ON_A_SMALL_SCREEN), (NORMAL, SIDE_BY_SIDE), (WIDE, {"values": MATRIX})],
    ids=["narrow", "normal", "wide"],
)
def test_one_after_the_other(size, stages):
    """Every screen has what its line in the tables above says."""
    screens("values.pt", stages, size=size)


def test_without_colours(monkeypatch):
    """Shades of characters, with signs for what is negative."""
    monkeypatch.setenv("NO_COLOR", "1")
    screen("values_no_color", "values.pt", *MATRIX, "2", size=NARROW)
