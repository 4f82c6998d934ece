"""What the right pane draws of a level: bars, and strips by depth."""

from __future__ import annotations

import pytest

from ckptdoctor.tui.models.opened_checkpoint import opened_checkpoint
from ckptdoctor.tui.models.summaries import bar, blocks, parts, strip
from ckptdoctor.values.statistics import TensorValues
from tests.tui.models.test_tree import flat


@pytest.fixture
def fold():
    """Five layers of two tensors, opened, and the line that stands for all of them."""
    opened = opened_checkpoint("m.pt", flat(*[f"layers.{layer}.{leaf}" for layer in range(5) for leaf in "ab"]))
    return opened, opened.lines.at(0).item


def test_parts_of_a_fold_are_those_of_one_block(fold):
    """Largest first."""
    assert [part.name for part in parts(*fold, 8)] == ["a", "b"]


def test_parts_below_a_fold_are_those_of_all_blocks():
    """Their shares are of the whole, as that of the fold is; what has no room is one part."""
    opened = opened_checkpoint("m.pt", flat("norm", *[f"h.{layer}.{leaf}" for layer in range(5) for leaf in "abcd"]))
    found = parts(opened, opened.lines.tree.root, 5)
    assert [(part.name, part.depth, part.nbytes // 24) for part in found] == [
        *(("h.{0…4}", 0, 20), ("a", 1, 5), ("b", 1, 5), ("2 more", 1, 10), ("norm", 0, 1))
    ]


def test_parts_of_a_single_part_are_shown_in_its_place():
    """One bar of 100 % shows nothing: what is below it does."""
    opened = opened_checkpoint("m.pt", flat("net.a.x", "net.a.y", "net.b"))
    root = opened.lines.tree.root
    assert len(opened.lines.tree.grow(root)) == 1
    assert [part.name for part in parts(opened, root, 2)] == ["a", "b"]


def test_nothing_is_counted_that_has_no_room():
    """Of a level with many parts these alone are looked at, and not what each of them is made of."""
    opened = opened_checkpoint("m.pt", flat(*[f"{part}.{leaf}" for part in ("x", "y", "z") for leaf in "ab"]))
    root = opened.lines.tree.root
    assert [part.name for part in parts(opened, root, 3)] == ["x", "y", "z"]
    assert all(level.children is None for level in root.children)
    assert [part.name for part in parts(opened, root, 5)] == ["x", "a", "b", "y", "z"]


def test_blocks_by_depth(fold):
    """Norms are put together, and what is NaN or nothing but zeros is counted."""
    _, branch = fold
    values = {row: TensorValues(6, norm=3.0 + row % 2, std=1.0) for row in range(10)}
    values[4] = TensorValues(6, nan=2, norm=3.0)
    values[9] = TensorValues(6, zeros=6)
    found = blocks(branch, values.get)
    assert [each.name for each in found] == list("01234")
    assert [each.norm for each in found[:2]] == [5.0, 5.0]
    assert [each.nan for each in found] == [0, 0, 2, 0, 0]
    assert [each.zero for each in found] == [0, 0, 0, 0, 1]


def test_a_bias_of_zeros_is_nothing_odd(fold):
    """Only what counts as a weight is told."""
    values = dict.fromkeys(range(10), TensorValues(6, zeros=6))
    assert [each.zero for each in blocks(fold[1], values.get, lambda row: row == 3)] == [0, 1, 0, 0, 0]


def test_no_strip_before_all_values_are_known(fold):
    """Half a picture would mislead."""
    assert blocks(fold[1], {0: TensorValues(6)}.get) == []


@pytest.mark.parametrize(
    ("numbers", "cells", "drawn"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        (list(range(80)), 8, "▁▂▃▄▅▆▇█"),
        ([5.0, 5.01], 8, "▄▄"),
        ([], 8, ""),
    ],
)
def test_strip(numbers, cells, drawn):
    """From the least to the largest; what hardly differs is flat, and neighbours share a cell where there are many."""
    assert strip(numbers, cells) == [drawn]


def test_strips_of_several_lines():
    """Twice as many steps, from the lower line to the upper one."""
    assert strip([0, 1, 8, 15], 4, 2) == ["  ▁█", "▁▂██"]


@pytest.mark.parametrize(("part", "drawn"), [(0, ""), (1, "▏"), (500, "████"), (1000, "████████"), (600, "████▊")])
def test_bar(part, drawn):
    """In eighths of a cell; what is there at all has a mark."""
    assert bar(part, 1000, 8) == drawn
