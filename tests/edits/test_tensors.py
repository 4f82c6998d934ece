"""Which edits are applied at once, and where new keys go."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.edits import Drop, Fill, Fuse, Replace, Split, Transpose
from ckptdoctor.edits.tensors import runs, with_new

KEYS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(".".join)


def test_edits_of_one_kind_that_touch_different_tensors_are_one_run():
    """Another kind, or the same tensor again, begins another run; every other edit stands alone."""
    turn = [Transpose((key,)) for key in "abc"]
    drop = Drop((("x",),))
    split, other = Split(("a",), (("q", 0, 1), ("k", 1, 2))), Split(("k",), (("l", 0, 1),))
    fills = [Fill((key,), "int64", (), 0) for key in "xyx"]
    fuse = Fuse((("x",), ("y",)), "z")
    edits = [*turn, turn[0], drop, drop, split, other, *fills, fuse]
    assert list(runs(edits)) == [
        *(tuple(turn), (turn[0],), (drop,), (drop,), (split,), (other,), tuple(fills[:2]), (fills[2],), (fuse,)),
    ]


def test_replacements_are_one_run_where_none_is_inside_another():
    """Of one value twice, or of a value in another one, the second begins another run."""
    a, b, inside, around = (Replace(path, 1) for path in (("a", 0), ("b",), ("b", "c"), ("a",)))
    assert list(runs([a, b, inside, around, a])) == [(a, b), (inside, around), (a,)]
    assert list(runs([b, b, Replace((), 2), a])) == [(b,), (b,), (Replace((), 2),), (a,)]


def test_new_keys_go_behind_their_siblings():
    """Behind the last key of their module; of the module around it where that is new; else at the end."""
    keys = ["a.w", "a.b.w", "c.w", "a.v", "d"]
    assert with_new(keys, ["a.b.n", "a.n", "c.x.n", "e"]) == [
        "a.w",
        "a.b.w",
        "a.b.n",
        "c.w",
        "c.x.n",
        "a.v",
        "a.n",
        "d",
        "e",
    ]
    assert with_new([], ["b", "a"]) == ["b", "a"]


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(KEYS, unique=True, max_size=12), st.lists(KEYS, unique=True, max_size=6))
def test_all_at_once_is_one_after_another(keys: list[str], new: list[str]):
    """The order of the keys does not depend on how many are added at once, and old ones keep theirs."""
    new = [key for key in new if key not in keys]
    one = keys
    for key in new:
        one = with_new(one, [key])
    assert with_new(keys, new) == one
    assert [key for key in one if key in keys] == keys
