"""Screens of values at several sizes, held against text files that people have looked at."""

from __future__ import annotations

import pytest

from tests.tui import NARROW, NORMAL, WIDE, screen

MATRIX = ("enter",)


@pytest.mark.parametrize("size", [NARROW, NORMAL], ids=str)
def test_glance(size):
    """Below what the headers say: statistics and a small histogram."""
    screen("values_glance", "values.pt", "down", "up", "text:", "tab", "end", size=size)


@pytest.mark.parametrize("size", [NARROW, NORMAL, WIDE], ids=str)
def test_values(size):
    """Everything side by side, or one view and the names of the others."""
    screen("values", "values.pt", *MATRIX, size=size)


@pytest.mark.parametrize(("view", "name"), [("2", "heatmap"), ("3", "histogram"), ("4", "extremes")])
def test_views(view, name):
    """On a small screen each view has all of it."""
    screen(f"values_{name}", "values.pt", *MATRIX, view, size=NARROW)


def test_scales():
    """Logarithmic counts, then powers of two."""
    screen("values_counts", "values.pt", *MATRIX, "s", size=NARROW)
    screen("values_sizes", "values.pt", *MATRIX, "s", "s", size=NARROW)


def test_one_dimension():
    """What has one dimension wraps, with round numbers at the left."""
    screen("values_line", "values.pt", "down", "down", "enter", "right", "down")


def test_a_slice_of_four_dimensions():
    """The next slice, with the value under the cursor in the border."""
    screen("values_conv", "values.pt", "down", "enter", "right_square_bracket", "r", "down")


def test_without_colours(monkeypatch):
    """Shades of characters, with signs for what is negative."""
    monkeypatch.setenv("NO_COLOR", "1")
    screen("values_no_color", "values.pt", *MATRIX, "2", size=NARROW)


def test_index():
    """The line to type an index in, with what is wrong below."""
    screen("values_index", "values.pt", *MATRIX, "i", "9", "enter", size=NARROW)
