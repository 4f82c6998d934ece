"""Dicts at key paths, where a file may be odder than its paths say."""

from __future__ import annotations

from ckptdoctor.checkpoint import Mapping, Opaque, Sequence
from ckptdoctor.checkpoint.tree import mapping_at

INNER = Mapping("dict", ())


def test_dicts_are_found_and_nothing_else() -> None:
    """A path to a dict gives it; a path to something else, or to nothing, gives None."""
    tree = Mapping("dict", (("a", Sequence("list", (INNER, 3))),))
    assert mapping_at(tree, ("a", 0)) is INNER
    assert mapping_at(tree, ("a", 1)) is None
    assert mapping_at(tree, ("b",)) is None


def test_the_state_of_an_object_may_hide_it() -> None:
    """An object whose state is a tuple has no way to what lies in that state: no error."""
    tree = Opaque("a.B", state=Sequence("tuple", (INNER,)))
    assert mapping_at(tree, (0,)) is None
