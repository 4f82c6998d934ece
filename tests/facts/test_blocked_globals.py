"""Refused names, their causes and their places."""

from __future__ import annotations

import pytest

from ckptdoctor.checkpoint import Checkpoint, GlobalName, Mapping, Named, Opaque, Sequence, Storage, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.facts.globals import BlockedCause, blocked_by, blocked_globals, outermost


def tensor(*path, **more):
    return Tensor(path, BY_NAME["float32"], (1,), (1,), Storage("0", 4, None, "cpu", None), **more)


def checkpoint(tree, *names):
    found = tuple([GlobalName(*name.rsplit(".", 1), "data.pkl", index) for index, name in enumerate(names)])
    return Checkpoint("f", "torch zip", 0, tree, (), (), (), globals=found)


def mapping(**entries):
    return Mapping("dict", tuple(entries.items()))


def linear():
    state = mapping(training=True, _parameters=mapping(weight=tensor("w")), _modules=mapping())
    return Opaque("torch.nn.modules.linear.Linear", (), state)


def test_allowed_names_are_no_finding():
    """What torch accepts is not blocked, under its old name either."""
    names = ("collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "__builtin__.set")
    assert blocked_globals(checkpoint(mapping(w=tensor("w")), *names)) == ()


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("argparse.Namespace", BlockedCause.OTHER),
        ("torch.optim.adam.Adam", BlockedCause.OTHER),
        ("pathlib.PosixPath", BlockedCause.PATH),
        ("pathlib._local.PosixPath", BlockedCause.PATH),
        ("numpy._core.multiarray.scalar", BlockedCause.NUMPY),
        ("numpy.core.multiarray._reconstruct", BlockedCause.NUMPY),
        ("__main__.RecorderMeter", BlockedCause.FOREIGN),
        ("omegaconf.dictconfig.DictConfig", BlockedCause.FOREIGN),
        ("posix.system", BlockedCause.DANGEROUS),
        ("__builtin__.eval", BlockedCause.DANGEROUS),
    ],
)
def test_each_name_has_one_cause(name, cause):
    """Also where it appears nowhere in the tree."""
    (found,) = blocked_globals(checkpoint(mapping(x=1), name))
    assert found.cause is cause


def test_classes_within_a_module_belong_to_it():
    """A class that is used in a pickled model only is the model's, another use makes it its own."""
    tree = mapping(model=Opaque("models.Net", (), mapping(_parameters=mapping(), _modules=mapping(fc=linear()))))
    names = ("models.Net", "torch.nn.modules.linear.Linear")
    assert [each.cause for each in blocked_globals(checkpoint(tree, *names))] == [
        BlockedCause.MODULE,
        BlockedCause.MODULE,
    ]
    tree = Mapping("dict", (*tree.entries, ("kind", Named("models.Net"))))
    assert [each.cause for each in blocked_globals(checkpoint(tree, *names))] == [
        BlockedCause.FOREIGN,
        BlockedCause.MODULE,
    ]


def test_dangerous_comes_before_everything():
    """A dangerous name inside a model is dangerous."""
    state = mapping(_parameters=mapping(), _modules=mapping(), hook=Opaque("posix.system", ("ls",)))
    found = blocked_globals(checkpoint(mapping(model=Opaque("models.Net", (), state)), "models.Net", "posix.system"))
    assert [each.cause for each in found] == [BlockedCause.MODULE, BlockedCause.DANGEROUS]
    assert [place.path for place in found[1].places] == [("model", "hook")]


def test_places_are_paths_in_the_tree():
    """Objects, kinds of dicts and lists, classes and tensor subclasses are all found, in file order."""
    tree = mapping(
        a=Opaque("my.Thing"),
        b=Sequence("list", (1, Mapping("my.Thing", ()), Sequence("my.Thing", ()))),
        c=Named("my.Thing"),
        d=tensor("d", subclass="my.Thing"),
        e=tensor("e"),
    )
    (found,) = blocked_by(checkpoint(tree, "my.Thing"), BlockedCause.FOREIGN)
    assert [place.path for place in found.places] == [("a",), ("b", 1), ("b", 2), ("c",), ("d",)]


def test_a_frozenset_is_found():
    """Protocol 2 writes it as a call of builtins.frozenset, which torch refuses; the tree shows the container."""
    (found,) = blocked_globals(
        checkpoint(mapping(a=Sequence("frozenset", (1,)), b=Named("x")), "__builtin__.frozenset")
    )
    assert (found.path, [place.path for place in found.places]) == ("builtins.frozenset", [("a",)])


def test_outermost_places_hold_the_others():
    """A Namespace inside a Namespace is not told by itself."""
    inner = Opaque("argparse.Namespace", (), mapping(lr=1))
    tree = mapping(args=Opaque("argparse.Namespace", (), mapping(inner=inner)))
    found = blocked_by(checkpoint(tree, "argparse.Namespace"), BlockedCause.OTHER)
    assert [place.path for place in outermost(found)] == [("args",)]


def test_the_tree_is_walked_once():
    """Rules that ask one after another get the same answer object, and another checkpoint its own."""
    opened = checkpoint(mapping(args=Opaque("argparse.Namespace")), "argparse.Namespace")
    first = blocked_globals(opened)
    assert blocked_globals(opened) is first
    other = checkpoint(mapping(), "argparse.Namespace")
    assert blocked_globals(other) != first
