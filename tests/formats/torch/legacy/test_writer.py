from __future__ import annotations

import os

import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.checkpoint import Container, FileSource
from ckptdoctor.edits import Compact, Convert, Drop, MakeContiguous, Rename, Retag, TakeRoot
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import RefusedError, UnprovenError
from ckptdoctor.writing import Copy
from tests.builders import tagged
from tests.formats.torch.legacy.support import legacy_bytes, read, rewritten, save


def load(path, **options):
    return torch.load(path, weights_only=True, **options)


def test_no_edit_gives_the_same_bytes(tmp_path):
    """What is written without edits is a copy, byte for byte."""
    path = save({"a": torch.ones(3), "b": [torch.zeros(2, 2).t(), "x"]}, tmp_path / "a.pt")
    assert rewritten(path, []).read_bytes() == path.read_bytes()


def test_renaming_copies_all_storages_as_one_range(tmp_path):
    """Keys change in the pickle; everything behind it is one range of the original."""
    state = {f"module.{name}": torch.full((4,), float(number)) for number, name in enumerate("abc")}
    path = save({"state_dict": state, "epoch": 2}, tmp_path / "a.pt")
    pairs = tuple((key, key.removeprefix("module.")) for key in state)
    with FileSource(path) as source:
        recipe = formats.write(wanted_of(read(path), [Rename(("state_dict",), pairs)]), source)
    assert [type(segment) is Copy for segment in recipe.segments] == [False, True]
    loaded = load(rewritten(path, [Rename(("state_dict",), pairs)]))
    assert {key: tensor.tolist() for key, tensor in loaded["state_dict"].items()} == {
        key.removeprefix("module."): tensor.tolist() for key, tensor in state.items()
    }


def test_retagged_files_load_without_the_device(tmp_path):
    """After Retag to cpu, torch loads the file on any machine."""
    path = save({"a": tagged(torch.ones(2), "cuda:7"), "b": tagged(torch.zeros(1), "mps")}, tmp_path / "a.pt")
    loaded = load(rewritten(path, [Retag("cpu")]))
    assert loaded["a"].tolist() == [1.0, 1.0]
    assert loaded["b"].device.type == "cpu"


def test_dropped_values_take_their_storages_along(tmp_path):
    """The key list and the storages shrink to what is left, in their old order."""
    value = {"a": torch.ones(100), "b": torch.full((3,), 2.0), "c": {"d": torch.full((5,), 3.0)}}
    path = save(value, tmp_path / "a.pt")
    out = rewritten(path, [Drop((("a",),))])
    loaded = load(out)
    assert list(loaded) == ["b", "c"]
    assert loaded["b"].tolist() == [2.0] * 3
    assert loaded["c"]["d"].tolist() == [3.0] * 5
    assert out.stat().st_size < path.stat().st_size - 400
    assert load(rewritten(path, [TakeRoot(("c", "d"))])).tolist() == [3.0] * 5
    assert read(out).notes == ()


def test_compacted_and_contiguous_storages_have_true_counts(tmp_path):
    """Cut and remade storages are announced with their new lengths, so that torch reads all of them."""
    base = torch.arange(1000.0)
    other = torch.arange(6, dtype=torch.int16).view(2, 3)
    value = {"a": base[10:20], "t": other.t(), "u": other, "e": torch.ones(2)}
    path = save(value, tmp_path / "a.pt")
    key = read(path).tensors[0].storage.key
    out = rewritten(path, [Compact((key,)), MakeContiguous((("t",),))])
    loaded = load(out)
    for name, tensor in value.items():
        assert torch.equal(loaded[name], tensor)
    assert loaded["t"].is_contiguous()
    assert read(out).notes == ()
    assert out.stat().st_size < 1500


def test_bytes_behind_the_end_are_kept(tmp_path):
    """What torch never reads is copied all the same."""
    path = save({"a": torch.ones(2)}, tmp_path / "a.pt")
    with path.open("ab") as file:
        file.write(b"extra")
    assert rewritten(path, [Rename((), (("a", "b"),))]).read_bytes().endswith(b"extra")


def test_a_truncated_file_is_refused(tmp_path):
    """A copy of half a file would be half a file."""
    path = save({"a": torch.ones(20)}, tmp_path / "a.pt")
    os.truncate(path, path.stat().st_size - 4)
    with pytest.raises(RefusedError, match="as damaged as the original"):
        rewritten(path, [Rename((), (("a", "b"),))])


def test_an_ambiguous_pickle_is_not_rewritten(tmp_path):
    """What unpicklers may read differently cannot be proven to be kept."""
    data = legacy_bytes({"a": 7})
    path = tmp_path / "a.pt"
    path.write_bytes(data.replace(b"K\x07", b"I 7\n"))
    with FileSource(path) as source, pytest.raises(UnprovenError):
        formats.write(wanted_of(read(path), [Rename((), (("a", "b"),))]), source)


@pytest.mark.parametrize("options", [{}, {"mmap": True}, {"map_location": "meta"}])
def test_a_converted_file_loads_in_every_way(tmp_path, options):
    """As an archive, the same contents load plainly, mapped and on the meta device."""
    base = torch.arange(12.0)
    value = {"a": base[2:8].view(2, 3).t(), "b": base, "n": torch.tensor(3), "x": [1, "two"]}
    out = rewritten(save(value, tmp_path / "a.pt"), [Convert("torch zip"), Rename((), (("b", "whole"),))])
    loaded = load(out, **options)
    assert list(loaded) == ["a", "whole", "n", "x"]
    assert loaded["a"].stride() == (1, 3)
    assert loaded["x"] == [1, "two"]
    if "map_location" not in options:
        assert torch.equal(loaded["a"], value["a"])
        assert loaded["a"].untyped_storage()._cdata == loaded["whole"].untyped_storage()._cdata


def test_a_converted_file_is_what_torch_writes(tmp_path):
    """Apart from the identity, the archive has the bytes of torch.save of the same value."""
    value = {"a": torch.arange(5.0), "b": {"c": torch.ones(2, 2, dtype=torch.float16)}}
    out = rewritten(save(value, tmp_path / "a.pt"), [Convert("torch zip")]).read_bytes()
    torch.save(value, tmp_path / "archive.pt")
    wanted = (tmp_path / "archive.pt").read_bytes()
    start = wanted.index(b"serialization_id")
    assert out[: start - 100] == wanted[: start - 100]
    assert len(out) == len(wanted)


@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
def test_a_converted_module_loses_only_its_source(tmp_path):
    """Classes that legacy files wrap with their source are named plainly in an archive."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 3))
    out = rewritten(save(net, tmp_path / "a.pt"), [Convert("torch zip")])
    loaded = torch.load(out, weights_only=False)
    assert torch.equal(loaded[0].weight, net[0].weight)


def test_other_containers_are_refused(tmp_path):
    """Nothing but an archive can be made here."""
    with pytest.raises(RefusedError, match="not safetensors"):
        rewritten(save({"a": torch.ones(2)}, tmp_path / "a.pt"), [Convert("safetensors")])


def test_the_container_is_named(tmp_path):
    """The container says its format and that it can be read."""
    path = save(1, tmp_path / "a.pt")
    with FileSource(path) as source:
        container = formats.examine(source)
    assert isinstance(container, Container)
    assert (container.format, container.readable) == ("torch legacy", True)
