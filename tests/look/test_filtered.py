"""The part of a checkpoint that a filter keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptdoctor.checkpoint import show_path, walk
from ckptdoctor.checkpoint.tensor import Tensor
from ckptdoctor.errors import DamagedError, UnreadableError, UsageError
from ckptdoctor.look.contents import Asked, read_part
from ckptdoctor.look.filtered import read_filtered
from ckptdoctor.rules.examples import Obj, T
from tests import builders


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


def kept(path, text, root=None):
    """The key paths that are left."""
    part = read_filtered(path, text, root)
    assert {place for place, node in walk(part.node, part.root) if isinstance(node, Tensor)} == {
        each.path for each in part.checkpoint.tensors
    }
    return [show_path(each.path) for each in part.checkpoint.tensors]


def test_only_what_holds_tensors_that_are_kept_is_left(path):
    """Tensors, the levels above them, their state dicts and storages: and of how many they are."""
    part = read_filtered(path, "bias")
    assert [place for place, _ in walk(part.node)] == [(), ("state_dict",), ("state_dict", "module.fc.bias")]
    (state_dict,) = part.checkpoint.state_dicts
    assert state_dict.keys == ("module.fc.bias",)
    assert [each.key for each in part.checkpoint.storages] == [part.checkpoint.tensors[0].storage.key]
    assert part.asked == Asked("bias", 5)


def test_names_are_whole_whatever_part_is_shown(path):
    """Below a root the same words keep the same tensors as in all of the file."""
    assert kept(path, "state_dict/*.bias", "state_dict") == ["state_dict/module.fc.bias"]
    assert kept(path, "shape:5", "nets") == ["nets/1/w"]
    assert kept(path, "shape:5", "nets/0") == []
    assert read_filtered(path, "shape:5", "nets").asked == Asked("shape:5", 2)


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
    assert read_filtered(path, "  ") == read_part(path)


@pytest.mark.parametrize("text", ["bias", "finding:N401"])
def test_what_cannot_be_read(path, tmp_path, text):
    """It is raised as without a filter."""
    with pytest.raises(UnreadableError):
        read_filtered(str(tmp_path / "missing.pt"), text)
    (tmp_path / "cut.pt").write_bytes(Path(path).read_bytes()[:300])
    with pytest.raises(DamagedError):
        read_filtered(str(tmp_path / "cut.pt"), text)


def test_a_filter_that_makes_no_sense_is_said_before_the_file_is_opened():
    """Where there is no file at all, too."""
    with pytest.raises(UsageError, match="did you mean dtype:"):
        read_filtered("missing.pt", "dtyp:f32")
