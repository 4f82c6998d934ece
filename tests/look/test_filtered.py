"""The part of a checkpoint that a filter keeps."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ckptdoctor.checkpoint import Mapping, Opaque, Sequence, Tensor, at, walk
from ckptdoctor.look.filtered import pruned
from ckptdoctor.rules.examples import Obj, T
from tests import builders
from tests.commands import run_here
from tests.rendering.samples import tensor


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Weights behind a wrapper, of which two are one, with an optimizer and other contents."""
    path = tmp_path_factory.mktemp("filtered") / "training.pt"
    tied = T((2, 3), storage="tied")
    state = {"module.fc.weight": tied, "module.head.weight": tied, "module.fc.bias": T((2,))}
    contents = {
        "epoch": 41,
        "args": Obj("argparse.Namespace", {"lr": 0.1}),
        "state_dict": state,
        "nets": [{"w": T((4,))}, {"w": T((5,))}],
    }
    builders.save(contents, path)
    return str(path)


def shown(path, text, root=None):
    """What is left, as a program gets it."""
    part = () if root is None else ("--root", root)
    result = run_here("show", path, "--filter", text, *part, "--format", "json", cwd=os.path.dirname(path))
    return json.loads(result.stdout)


def kept(path, text, root=None):
    """The key paths that are left, in the list of tensors and in the contents alike."""
    document = shown(path, text, root)
    assert set(tensors_in(document["contents"])) == {each["path"] for each in document["tensors"]}
    return [each["path"] for each in document["tensors"]]


def tensors_in(contents):
    """The key paths of all tensors in contents."""
    if isinstance(contents, dict) and "$tensor" in contents:
        yield contents["$tensor"]
    elif isinstance(contents, (dict, list)):
        for each in contents.values() if isinstance(contents, dict) else contents:
            yield from tensors_in(each)


def test_only_what_holds_tensors_that_are_kept_is_left(path):
    """Tensors, the levels above them, their state dicts and storages: and of how many they are."""
    document = shown(path, "bias")
    tensor = {"$tensor": "state_dict/module.fc.bias"}
    assert document["contents"] == {"state_dict": {"module.fc.bias": tensor}}
    assert document["state_dicts"] == [{"path": "state_dict", "role": "model", "tensors": 1}]
    assert document["devices"] == [{"device": "cpu", "storages": 1, "bytes": 8}]
    assert document["filter"] == {"text": "bias", "of_tensors": 5}


def test_names_are_whole_whatever_part_is_shown(path):
    """Below a root the same words keep the same tensors as in all of the file."""
    assert kept(path, "state_dict/*.bias", "state_dict") == ["state_dict/module.fc.bias"]
    assert kept(path, "shape:5", "nets") == ["nets/1/w"]
    assert kept(path, "shape:5", "nets/0") == []
    assert shown(path, "shape:5", "nets")["filter"] == {"text": "shape:5", "of_tensors": 2}


def test_ties_to_what_is_not_shown_count(path):
    """A tensor is tied where its other name lies outside of the part, too."""
    assert kept(path, "is:tied", "state_dict/module.fc.weight") == ["state_dict/module.fc.weight"]


def test_findings(path):
    """The file is examined where a word asks what was found."""
    state = ["state_dict/module.fc.weight", "state_dict/module.head.weight", "state_dict/module.fc.bias"]
    assert kept(path, "finding:N401") == state
    assert kept(path, "finding:N401 bias") == state[2:]
    assert kept(path, "!finding:N401", "nets") == ["nets/0/w", "nets/1/w"]


def test_a_filter_without_words_keeps_everything(path):
    """As if there were none."""
    result = run_here("show", path, "--format", "json", cwd=os.path.dirname(path))
    assert shown(path, "  ") == json.loads(result.stdout)


@pytest.mark.parametrize("text", ["bias", "finding:N401"])
def test_what_cannot_be_read(path, tmp_path, text):
    """It is said as without a filter."""
    (tmp_path / "cut.pt").write_bytes(Path(path).read_bytes()[:300])
    for name in ("missing.pt", "cut.pt"):
        plain, filtered = (run_here("show", name, *more, cwd=tmp_path) for more in ((), ("--filter", text)))
        assert (filtered.returncode, filtered.stdout, filtered.stderr) == (2, b"", plain.stderr)
        assert name in plain.stderr.decode()


def test_a_filter_that_makes_no_sense_is_said_before_the_file_is_opened(tmp_path):
    """Where there is no file at all, too."""
    result = run_here("show", "missing.pt", "--filter", "dtyp:f32", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, b"") and b'Did you mean "dtype:"' in result.stderr


# ---- trees that no reader gives


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
