"""Plain pickles with tensors of torch: each storage is a whole legacy file inside the pickle."""

from __future__ import annotations

import pickle

import pytest
import torch

import ckptdoctor
from ckptdoctor.checkpoint import NoteKind, Role
from ckptdoctor.formats import open_checkpoint
from tests.formats.comparing import assert_same
from tests.formats.mangling import PLACES, endure

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


def state():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    made = dict(net.state_dict())
    made["tied"] = made["0.weight"]
    made["view"] = made["0.weight"].t()[1:]
    made["bfloat16"] = torch.ones(3, dtype=torch.bfloat16)
    made["parameter"] = torch.nn.Parameter(torch.rand(2))
    made["large"] = torch.rand(100_000)
    return made


def dumped(value, path, protocol=4):
    path.write_bytes(pickle.dumps(value, protocol))
    return path


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tensors_are_read_out_of_the_files_inside(protocol, tmp_path):
    """Types, shapes, strides and values are those that pickle.load gives, and ties stay ties."""
    path = dumped({"model": state(), "lr": 0.1}, tmp_path / "m.pkl", protocol)
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "pickle" and not checkpoint.notes
    assert [(each.path, each.role) for each in checkpoint.state_dicts] == [(("model",), Role.MODEL)]
    loaded = ckptdoctor.load(path)
    assert_same(loaded, pickle.loads(path.read_bytes()))
    assert loaded["model"]["tied"].data_ptr() == loaded["model"]["0.weight"].data_ptr()
    assert isinstance(loaded["model"]["parameter"], torch.nn.Parameter)


def test_float8_is_read_although_torch_cannot(tmp_path):
    """torch writes its storage as an untyped one, which torch 2.13 itself fails to read again."""
    tensor = torch.ones(3).to(torch.float8_e4m3fn)
    assert_same(ckptdoctor.load(dumped({"w": tensor}, tmp_path / "m.pkl")), {"w": tensor})


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_extents_count_from_the_beginning_of_the_outer_file(protocol, tmp_path):
    """They hold just the values."""
    tensor = torch.arange(100.0)
    path = dumped({"w": tensor}, tmp_path / "m.pkl", protocol)
    extent = open_checkpoint(path).tensors[0].storage.extent
    assert path.read_bytes()[extent.offset : extent.offset + extent.length] == tensor.numpy().tobytes()


def test_what_reads_the_files_inside_is_not_held_against_the_pickle(tmp_path):
    """Each was read here, and what it names is told; where one cannot be, the name that loads it stays."""
    path = dumped({"w": torch.ones(3)}, tmp_path / "m.pkl")
    names = {use.full for use in open_checkpoint(path).globals}
    assert "torch.storage._load_from_bytes" not in names and "torch.FloatStorage" in names
    data = path.read_bytes()
    path.write_bytes(data.replace(bytes.fromhex("6cfc9c46f9206aa85019"), bytes(10)))
    checkpoint = open_checkpoint(path)
    assert "torch.storage._load_from_bytes" in {use.full for use in checkpoint.globals} and not checkpoint.tensors


def test_a_file_inside_that_breaks_off_is_a_note(tmp_path):
    """The tensors beside it are read."""
    whole = pickle.dumps({"w": torch.ones(1000), "v": torch.zeros(2)}, 4)
    at = whole.index(torch.ones(1000).numpy().tobytes())
    data = bytearray(whole)
    data[at - 8 : at] = (2000).to_bytes(8, "little")
    (tmp_path / "m.pkl").write_bytes(data)
    kinds = {note.kind for note in open_checkpoint(tmp_path / "m.pkl").notes}
    assert NoteKind.STORAGE_SIZE in kinds


@PLACES
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_mangled_pickle_is_read_or_refused(protocol, places, tmp_path):
    """Cut at every byte, and with every byte changed, those of the file inside too."""
    endure(pickle.dumps({"w": torch.ones(2, 2)}, protocol), tmp_path, places)


def test_many_tensors_take_no_longer_than_they_must(tmp_path):
    """Each file inside is read by its beginning, however long it is."""
    path = dumped({f"w{index}": torch.zeros(50_000) for index in range(100)}, tmp_path / "m.pkl")
    checkpoint = open_checkpoint(path)
    assert len(checkpoint.tensors) == 100 and checkpoint.bytes_read < 2_000_000
