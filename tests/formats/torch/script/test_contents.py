"""TorchScript archives, held against the state dict that torch.jit.load gives."""

from __future__ import annotations

import io
import zipfile

import pytest
import torch
from torch import nn

import ckptdoctor
from ckptdoctor.checkpoint import NoteKind, Special
from ckptdoctor.edits import Drop
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import DamagedError, RefusedError
from ckptdoctor.formats import open_checkpoint, opened, read, write
from tests.formats.comparing import assert_same
from tests.formats.mangling import PLACES, endure

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.filterwarnings("ignore::Warning")]


class Net(nn.Module):
    """Ties, buffers of both kinds, a tensor that is neither, a list of modules, an empty parameter, and names."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
        self.tied = nn.Linear(3, 4)
        self.tied.weight = self.body[0].weight
        self.shared = self.body
        self.blocks = nn.ModuleList([nn.Conv1d(4, 4, 1), nn.LSTM(4, 4)])
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("passing", torch.zeros(2), persistent=False)
        self.register_parameter("nothing", None)
        self.frozen = nn.Parameter(torch.rand(2), requires_grad=False)
        self.grid = torch.arange(3.0)
        self.names = ["a", "b"]
        self.transposed = nn.Parameter(torch.rand(4, 5).t())

    def forward(self, x):
        made = self.body(x) + self.tied(x) + self.grid.sum() + torch.tensor([2.5]) + len(self.names)
        return made + self.kept.sum() + self.passing.sum() + self.frozen.sum() + self.transposed.sum()


def saved(module, path):
    torch.jit.save(module, path)
    return path


@pytest.fixture(params=["scripted", "traced"])
def path(request, tmp_path):
    net = Net().eval()
    made = torch.jit.script(net) if request.param == "scripted" else torch.jit.trace(net, torch.rand(2, 3))
    return saved(made, tmp_path / "m.pt")


def test_it_holds_the_state_dict_that_torch_gives(path):
    """The same keys in the same order, types, shapes, strides and values, and ties stay ties."""
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "TorchScript archive"
    assert [each.path for each in checkpoint.state_dicts] == [()]
    loaded, theirs = ckptdoctor.load(path), torch.jit.load(path).state_dict()
    assert len(theirs) > 15
    assert_same(loaded, dict(theirs))
    assert loaded["tied.weight"].data_ptr() == loaded["body.0.weight"].data_ptr()


def test_tensors_beside_the_state_dict_are_attributes_of_it(tmp_path):
    """Those of the modules under their names, those of the code by number."""
    net = Net().eval()
    scripted = open_checkpoint(saved(torch.jit.script(net), tmp_path / "s.pt"))
    assert [tensor.path for tensor in scripted.tensors if tensor.path[0] == Special(".attributes")] == [
        (Special(".attributes"), "grid")
    ]
    assert [note.kind for note in scripted.notes if "names" in note.message] == [NoteKind.NOT_EXAMINED]
    traced = open_checkpoint(saved(torch.jit.trace(net, torch.rand(2, 3)), tmp_path / "t.pt"))
    assert {tensor.path for tensor in traced.tensors if len(tensor.path) > 1} == {
        (Special(".constants"), index) for index in range(3)
    } | {tensor.path for tensor in traced.tensors if tensor.path[0] == Special(".attributes")}


def test_a_frozen_module_and_one_without_anything_have_no_state(tmp_path):
    """As in torch: what was frozen is a constant."""
    frozen = torch.jit.freeze(torch.jit.script(nn.Linear(2, 2).eval()))
    path = saved(frozen, tmp_path / "m.pt")
    assert ckptdoctor.load(path) == dict(torch.jit.load(path).state_dict()) == {}
    assert open_checkpoint(saved(torch.jit.script(nn.ReLU()), tmp_path / "e.pt")).tensors == ()


def test_module_names_do_not_look_foreign(path):
    """What the archive names of its own code is no global that torch.load would import."""
    assert all(use.module.startswith(("torch", "collections")) for use in open_checkpoint(path).globals)


def test_a_module_that_packs_its_state_by_its_own_code_says_so(tmp_path):
    """Only the tensors inside can be shown: the code is not run."""

    class Packing(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        @torch.jit.export
        def __getstate__(self):
            return self.weight * 2, self.training

        @torch.jit.export
        def __setstate__(self, state: tuple[torch.Tensor, bool]):
            self.weight = state[0]
            self.training = state[1]

        def forward(self, x):
            return x * self.weight

    checkpoint = open_checkpoint(saved(torch.jit.script(nn.Sequential(Packing())), tmp_path / "m.pt"))
    assert [note.kind for note in checkpoint.notes] == [NoteKind.NOT_EXAMINED]
    assert "packed by code of their own" in checkpoint.notes[0].message
    assert [tensor.shape for tensor in checkpoint.tensors] == [(3,)]


def test_without_its_code_every_tensor_counts(path, tmp_path):
    """Which attributes are parameters is only said there."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "bare.pt", "w") as bare:
        for name in archive.namelist():
            if "/code/" not in name:
                bare.writestr(name, archive.read(name))
    keys = [tensor.key for tensor in open_checkpoint(tmp_path / "bare.pt").tensors]
    assert {"kept", "frozen"} <= set(keys)


def test_extents_hold_the_values_with_their_checksums(path):
    """Each storage is a record of the archive."""
    with zipfile.ZipFile(path) as archive:
        folder = archive.namelist()[0].partition("/")[0]
        for storage in open_checkpoint(path).storages:
            name = storage.key if "/" in storage.key else f"data/{storage.key}"
            assert storage.crc32 == archive.getinfo(f"{folder}/{name}").CRC


def test_a_missing_record_is_a_note_and_an_error_when_its_values_are_asked_for(path, tmp_path):
    """The rest is shown."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "less.pt", "w") as less:
        for name in archive.namelist():
            if not name.endswith("/data/0"):
                less.writestr(name, archive.read(name))
    assert NoteKind.STORAGE_MISSING in {note.kind for note in open_checkpoint(tmp_path / "less.pt").notes}
    with pytest.raises(DamagedError, match="the file has 0"):
        ckptdoctor.load(tmp_path / "less.pt")


def test_it_is_not_repaired_but_converted(path):
    """Edits are refused with the command that makes a file that can be repaired."""
    with (
        opened(path) as (source, container),
        pytest.raises(RefusedError, match="TorchScript archive, which cannot be repaired in place"),
    ):
        write(wanted_of(read(source, container), [Drop((("kept",),))]), source)


@PLACES
def test_a_mangled_archive_is_read_or_refused(places, tmp_path):
    """Cut at many bytes, and with many bytes changed."""
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), buffer)
    endure(buffer.getvalue(), tmp_path, places)
