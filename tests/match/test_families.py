"""Layouts of other code bases are told by the names they use."""

from __future__ import annotations

import pytest

from ckptdoctor.match.published.families import FAMILIES, family_of, layout


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.layouts[0].name)
def test_two_layouts_of_a_family_are_told_apart(family):
    """The marks of each layout are those of no other one."""
    for one in family.layouts:
        assert layout([f"x{mark}weight" for mark in one.marks]) is one
        assert family_of(one, one) is None
        assert all(family_of(one, other) is family for other in family.layouts if other is not one)


def test_anything_else_has_no_layout():
    """Keys without marks, and keys with those of two code bases."""
    assert layout(["conv1.weight"]) is None
    both = [f"x{mark}weight" for family in FAMILIES[:2] for mark in family.layouts[0].marks]
    assert layout(both) is None
