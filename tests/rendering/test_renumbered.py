"""Numbers of states before and after."""

from __future__ import annotations

from ckptdoctor.rendering.fix_text import moves, renumbered


def _pairs(order: list[int]) -> list[tuple[str, str]]:
    return [(str(old), str(new)) for old, new in enumerate(order) if old != new]


def test_two_that_change_places():
    """Each is told with its number before and after."""
    assert renumbered(_pairs([0, 2, 1])) == "states 1  →  2, 2  →  1"


def test_neighbours_that_move_alike_are_one():
    """A permutation of all is told by what moves where, not by the same numbers on both sides."""
    assert renumbered(_pairs([23, *range(23)])) == "states 0  →  23, 1..23  →  0..22"


def test_many_are_counted():
    """Some are told, and all of them where they are listed."""
    pairs = _pairs(list(range(11))[::-1])
    assert renumbered(pairs).endswith("4  →  6, and 5 more such moves")
    assert len(list(moves(pairs))) == len(pairs) == 10
