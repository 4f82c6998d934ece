"""Rows of fused projections, for every layout."""

from __future__ import annotations

import pytest

from ckptdoctor.errors import RefusedError
from ckptdoctor.match.shapes.projections import QKV_LAYOUTS, fuse_order, rows, split_parts


def test_all_queries_then_all_keys_then_all_values():
    """With fewer key-value heads their part is smaller."""
    assert rows("q-k-v", 4, 2, 8) == {"q": ((0, 32),), "k": ((32, 48),), "v": ((48, 64),)}
    assert rows("k-v-q", 4, 2, 8) == {"q": ((32, 64),), "k": ((0, 16),), "v": ((16, 32),)}


def test_heads_one_after_another():
    """The query, key and value of a head lie together."""
    assert rows("per-head", 2, 2, 3) == {"q": ((0, 3), (9, 12)), "k": ((3, 6), (12, 15)), "v": ((6, 9), (15, 18))}


def test_groups_one_after_another():
    """Each group has all its queries, then a key and a value."""
    assert rows("grouped", 4, 2, 1) == {"q": ((0, 2), (4, 6)), "k": ((2, 3), (6, 7)), "v": ((3, 4), (7, 8))}
    assert rows("grouped", 3, 3, 5) == rows("per-head", 3, 3, 5)


@pytest.mark.parametrize("layout", QKV_LAYOUTS)
def test_every_row_belongs_to_one_part(layout: str):
    """Nothing is left out, nothing is there twice; fusing puts each piece back where it was."""
    ranges = rows(layout, 6, 6, 4)
    taken = sorted(row for part in ranges.values() for start, stop in part for row in range(start, stop))
    assert taken == list(range(72))
    parts = split_parts(ranges, {"q": "a.q", "k": "a.k", "v": "a.v"})
    lines = {
        key: [row for name, start, stop in parts if name == key for row in range(start, stop)] for key, _, _ in parts
    }
    fused = [row for number, start, stop in fuse_order(ranges) for row in lines["a." + "qkv"[number]][start:stop]]
    assert fused == list(range(72))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("qkv", 4, 4, 8), "is not a layout"),
        (("q-k-v", 4, 3, 8), "do not divide"),
        (("per-head", 4, 2, 8), "as many key-value heads"),
        (("grouped", 0, 1, 8), "at least 1"),
        (("grouped", 4, 2, 0), "at least 1"),
    ],
)
def test_heads_that_do_not_divide_are_refused(asked: tuple[str, int, int, int], words: str):
    """The layout is never guessed."""
    with pytest.raises(RefusedError, match=words):
        rows(*asked)
