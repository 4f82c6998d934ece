"""Nested contents with only the levels that lead to some of their tensors."""

from __future__ import annotations

from ckptdoctor.checkpoint import Mapping, Opaque, Sequence, Tensor, at, walk
from ckptdoctor.look.pruning import pruned
from tests.report.samples import tensor


def net(*path):
    """A dict of two tensors at a key path."""
    return Mapping("dict", tuple((key, tensor(*path, key)) for key in "wb"))


NETS = Sequence("list", (net("nets", 0), net("nets", 1)))
TREE = Mapping("collections.OrderedDict", (("epoch", 41), ("nets", NETS), ("empty", Mapping("dict", ()))))


def test_levels_without_a_tensor_are_left_out():
    """Kinds and steps stay; a list in which something is left out has the indices it had."""
    second = Mapping("dict", (("w", tensor("nets", 1, "w")),))
    nets = Mapping("list", ((1, second),))
    assert pruned(TREE, {("nets", 1, "w")}) == Mapping("collections.OrderedDict", (("nets", nets),))
    first = Mapping("dict", (("w", tensor("nets", 0, "w")),))
    both = pruned(TREE, {("nets", 0, "w"), ("nets", 1, "w")})
    assert at(both, ("nets",)) == Sequence("list", (first, second))


def test_what_is_kept_whole_is_as_it_was():
    """Nothing is made anew that anybody could tell from what it was."""
    assert pruned(NETS, {("nets", number, key) for number in (0, 1) for key in "wb"}) == NETS


def test_one_tensor():
    """The part of a file that is shown may be no more than that."""
    one = tensor("nets", 0, "w")
    assert pruned(one, {one.path}) == one
    assert pruned(one, {("other",)}) == Mapping("dict", ())


def test_where_nothing_is_kept():
    """Neither levels nor plain values are left."""
    assert pruned(TREE, set()) == Mapping("dict", ())
    assert pruned(41, {()}) == Mapping("dict", ())


def test_every_tensor_is_found_where_it_was():
    """In objects, under attributes of dicts, anywhere: its key path stays, and the class of what holds it."""
    arguments = (tensor("(0)"), Mapping("dict", (("a", tensor("(1)", "a")), ("b", 1))))
    state = Mapping("dict", (("weight", tensor("weight")), ("training", True)))
    whole = Opaque("nets.Net", arguments, state, (tensor(0),), (("key", tensor("key")),))
    odd = Opaque("nets.Odd", (), Sequence("tuple", (1, tensor(".state", 1))))
    attributes = Mapping("dict", (("extra", tensor(".extra")), ("_metadata", Mapping("dict", (("", 1),)))))
    for tree in (whole, odd, Mapping("dict", (("epoch", 1),), attributes)):
        for path, node in [(path, node) for path, node in walk(tree) if isinstance(node, Tensor)]:
            small = pruned(tree, {node.path})
            assert [place for place, _ in walk(small)] == [path[:depth] for depth in range(len(path) + 1)]
            assert getattr(small, "class_name", "") == getattr(tree, "class_name", "")


def test_no_depth_is_too_deep():
    """A file may nest as deeply as it likes."""
    node = tensor("deep")
    for _ in range(5_000):
        node = Mapping("dict", (("a", node), ("b", 1)))
    path = ("a",) * 5_000
    small = pruned(node, {("deep",)})
    assert at(small, path) == tensor("deep")
    assert "b" not in dict(small.entries)
