"""Modules that hold the same parameters have the same form, however they are called and nested."""

from __future__ import annotations

from ckptdoctor.match.module_trees import Forms, tree


def grown(*keys):
    """The tree of keys whose shape is their number of letters."""
    return keys, lambda key: (key.rpartition(".")[2], (key.count("x"),))


def test_the_form_is_that_of_what_is_below():
    """Order and nesting do not matter, names of parameters and shapes do."""
    forms = Forms()
    one, nested, other = (
        tree(*grown(*keys), forms)
        for keys in (("a.weight", "b.bias"), ("q.r.bias", "q.s.t.weight"), ("a.weight", "b.xbias"))
    )
    assert one.form == nested.form
    assert one.form != other.form
    assert one.size == nested.size == 2


def test_a_module_alone_in_another_one_is_the_same_part():
    """What is below a chain of modules with one child each is one part."""
    root = tree(*grown("a.b.c.weight", "a.b.c.bias", "d.weight"), Forms())
    part, leaf = root.parts()
    assert part.tokens == ("a", "b", "c")
    assert part.top().tokens == ("a",)
    assert part.outside() is root
    assert leaf.key == "d.weight"


def test_a_key_that_is_also_a_prefix_stands_beside_it():
    """``a`` and ``a.b`` are two parameters."""
    root = tree(*grown("a", "a.b"), Forms())
    assert sorted(part.key for part in root.parts()) == ["a", "a.b"]
    assert root.size == 2


def test_endless_keys_stand_outside():
    """A key of a thousand tokens makes no tree of a thousand nodes."""
    assert tree(*grown("a" + ".a" * 1000), Forms()).size == 0
