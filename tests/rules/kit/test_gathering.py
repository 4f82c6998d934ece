"""Many replacements gathered into a few."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.checkpoint import Checkpoint, Mapping, Opaque, Sequence, Special, walk
from ckptdoctor.edits import Replace
from ckptdoctor.edits.applied.apply_edits import apply
from ckptdoctor.rules.kit.blocked import FEW, gathered_values

OBJECT = Opaque("numpy.x")


def listed(*items):
    return Sequence("list", items)


def mapping(**entries):
    return Mapping("dict", tuple(entries.items()))


def test_a_few_are_left_one_by_one():
    """Replacing just what must be replaced is the smaller change."""
    tree = mapping(a=listed(OBJECT, 1))
    assert gathered_values(tree, {("a", 0): 5}) == {("a", 0): 5}


def test_a_long_list_is_replaced_whole():
    """With the plain values in it as they were."""
    tree = mapping(losses=listed(*[OBJECT] * 20, None, "end"))
    assert gathered_values(tree, {("losses", index): index for index in range(20)}) == {
        ("losses",): [*range(20), None, "end"]
    }


def test_what_contains_replaced_containers_follows():
    """A list of dicts of numbers becomes one replacement; so does a tuple."""
    log = listed(*[mapping(loss=OBJECT, step=index) for index in range(20)])
    tree = mapping(log=log, pair=Sequence("tuple", (OBJECT, 1)))
    values = {("log", index, "loss"): 0.5 for index in range(20)} | {("pair", 0): 2}
    assert gathered_values(tree, values) == {
        ("log",): [{"loss": 0.5, "step": index} for index in range(20)],
        ("pair",): (2, 1),
    }


def test_mixed_containers_stay():
    """What holds anything else, is of another kind, or has odd keys is replaced value by value."""
    others = [OBJECT] * (FEW + 1)
    trees = (
        listed(*others, Opaque("other")),
        Sequence("set", tuple(others)),
        Mapping("collections.OrderedDict", tuple(enumerate(others))),
        Mapping("dict", (*enumerate(others), (Special("(1, 2)"), 3))),
    )
    for tree in trees:
        values = {("x", index): 1 for index in range(FEW + 1)}
        assert gathered_values(mapping(x=tree, y=OBJECT), values) == values


def test_the_root_stays():
    """The whole contents are never one replacement."""
    values = {(index,): 1 for index in range(FEW + 1)}
    assert gathered_values(listed(*[OBJECT] * (FEW + 1)), values) == values


trees = st.recursive(
    st.one_of(st.integers(), st.none(), st.just(OBJECT), st.just(Opaque("other"))),
    lambda below: st.one_of(
        st.lists(below, max_size=8).map(lambda items: Sequence("list", tuple(items))),
        st.lists(below, max_size=4).map(lambda items: Sequence("tuple", tuple(items))),
        st.dictionaries(st.text(max_size=2), below, max_size=5).map(lambda found: mapping(**found)),
    ),
    max_leaves=60,
)


@settings(deadline=None, max_examples=100)
@given(trees)
def test_the_change_is_the_same(tree):
    """Applied to the tree, a few large replacements give what many small ones give."""
    tree = mapping(top=tree)
    values = {path: 7 for path, node in walk(tree) if node == OBJECT}
    checkpoint = Checkpoint("f", "torch zip", 0, tree, (), (), ())

    def after(replacements):
        return apply(checkpoint, [Replace(path, value) for path, value in replacements.items()]).tree

    assert after(gathered_values(tree, values)) == after(values)
