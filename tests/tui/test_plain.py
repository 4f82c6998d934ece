"""Terminals that can do little: tiny ones, those without colour, and those that say they are dumb."""

from __future__ import annotations

import pytest

from tests.tui import browse, screen, walk
from tests.tui.test_terminal import on_a_terminal

TINY = (40, 10)
STAGES = [
    (),
    ("question_mark",),
    ("escape", "slash", "text:fc"),
    ("escape", "t", "end"),
    ("shift+tab",),
    ("tab", "t", "home", "down", "down", "right"),
    ("ctrl+p",),
]


@pytest.mark.parametrize("size", [TINY, (1, 1)], ids=str)
def test_nothing_breaks_on_a_tiny_terminal(size):
    """No line is longer than the screen, and nothing fails."""
    for keys, text in zip(STAGES, walk("resnet.pt", *STAGES, size=size), strict=True):
        lines = text.split("\n")
        assert len(lines) == size[1], keys
        assert all(len(line) <= size[0] for line in lines), keys


@pytest.mark.parametrize("size", [TINY, (20, 5)], ids=str)
def test_a_damaged_file_on_a_tiny_terminal(size):
    """The same."""
    assert len(browse("cut.pt", "s", "escape", "tab", "end", size=size).split("\n")) == size[1]


def test_the_tree_is_there_in_forty_columns():
    """It is still of use."""
    screen("opened", "resnet.pt", "down", size=TINY)


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({"TERM": "dumb"}, marks=pytest.mark.slow),
        pytest.param({"NO_COLOR": "1"}, marks=pytest.mark.slow),
        {"TERM": "dumb", "NO_COLOR": "1"},
    ],
    ids=str,
)
def test_on_a_plain_terminal(variables):
    """It opens, shows the tree, and quits; without colour where that is asked for."""
    output, status = on_a_terminal("browse", "resnet.pt", variables=variables)
    assert status == 0
    assert b"state_dict" in output
    if "NO_COLOR" in variables:
        assert b"\x1b[38;" not in output and b";38;2;" not in output
