"""Tar archives of torch before 0.1.10, written as torch 0.1.9 wrote them and held against torch's own reader."""

from __future__ import annotations

import pickle
from collections import OrderedDict

import pytest
import torch
from torch import nn

import ckptdoctor
from ckptdoctor.checkpoint import NoteKind, Opaque, Role
from ckptdoctor.edits import Drop
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import DamagedError, RefusedError
from ckptdoctor.facts.whole_modules import module_state
from ckptdoctor.formats import open_checkpoint, opened, read, write
from tests.formats.comparing import assert_same
from tests.formats.mangling import PLACES, endure
from tests.formats.torch.tar.support import UNFILTERED, members_of, packed, tar_bytes

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")


def contents():
    weight = torch.rand(3, 4)
    state = OrderedDict(
        a=weight,
        transposed=weight.t(),
        view=weight[1:, 2:],
        long=torch.arange(5),
        double=torch.rand(2, dtype=torch.float64),
        half=torch.ones(3).half(),
        scalar=torch.tensor(3.5),
    )
    return {"state": state, "epoch": 3, "plain": [1.5, (2, "x")]}


def saved(value, path, protocol=2):
    path.write_bytes(tar_bytes(value, protocol))
    return path


@UNFILTERED
@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_it_holds_what_torch_loads(protocol, tmp_path):
    """Keys, types, shapes, strides and values; views of one storage share it."""
    path = saved(contents(), tmp_path / "m.pth.tar", protocol)
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "torch tar" and not checkpoint.notes
    assert [(each.path, each.role) for each in checkpoint.state_dicts] == [(("state",), Role.MODEL)]
    loaded = ckptdoctor.load(path)
    assert_same(loaded, torch.load(path, weights_only=False))
    assert loaded["state"]["a"].data_ptr() == loaded["state"]["transposed"].data_ptr()


def test_extents_hold_the_values(tmp_path):
    """They lie in one run in the file."""
    path = saved({"w": torch.arange(6.0)}, tmp_path / "m.tar")
    (storage,) = open_checkpoint(path).storages
    at = storage.extent.offset
    assert path.read_bytes()[at : at + storage.nbytes] == torch.arange(6.0).numpy().tobytes()


@UNFILTERED
def test_storage_views_are_parts_of_their_storage(tmp_path):
    """As torch 0.1 wrote slices of storages: the view has a key of its own, an offset and a length."""
    members = members_of({"w": torch.arange(6.0)})
    key, location, kind, whole = 7, "cpu", torch.FloatStorage, torch.arange(6.0)
    members["storages"] = b"".join(
        [pickle.dumps(1, 2), pickle.dumps((key, location, kind), 2), (6).to_bytes(8, "little"), whole.numpy().tobytes()]
    ) + pickle.dumps([(8, key, 2, 3)], 2)
    tensor = int(pickle.loads(members["tensors"][len(pickle.dumps(1, 2)) :])[0])
    members["tensors"] = pickle.dumps(1, 2) + pickle.dumps((tensor, 8, torch.FloatTensor), 2)
    members["tensors"] += b"".join(
        number.to_bytes(width, "little") for number, width in ((1, 4), (0, 4), (2, 8), (1, 8))
    )
    members["tensors"] += (1).to_bytes(8, "little")
    (tmp_path / "m.tar").write_bytes(packed(members))
    assert ckptdoctor.load(tmp_path / "m.tar")["w"].tolist() == [3.0, 4.0]
    assert torch.load(tmp_path / "m.tar", weights_only=False)["w"].tolist() == [3.0, 4.0]


def test_a_whole_model_is_shown_with_its_class(tmp_path):
    """The pickle names classes of modules by persistent ids."""
    net = nn.Linear(2, 3)
    checkpoint = open_checkpoint(saved(net, tmp_path / "m.tar"))
    assert isinstance(checkpoint.tree, Opaque) and checkpoint.tree.class_name == "torch.nn.modules.linear.Linear"
    assert [key for key, _ in module_state(checkpoint.tree).tensors] == ["weight", "bias"]


def test_a_file_that_is_cut_off_says_so_and_shows_what_is_there(tmp_path):
    """The last storages are lost; the tensors are told all the same."""
    data = tar_bytes({"a": torch.ones(500), "b": torch.ones(5000)})
    (tmp_path / "m.tar").write_bytes(data[: data.rindex(torch.ones(100).numpy().tobytes()) - 4000])
    checkpoint = open_checkpoint(tmp_path / "m.tar")
    assert NoteKind.TRUNCATED in {note.kind for note in checkpoint.notes}
    assert checkpoint.tensors[0].key == "a"


@pytest.mark.parametrize("name", ["storages", "tensors", "pickle"])
def test_a_member_that_is_not_there_is_damage(name, tmp_path):
    """The error names it."""
    members = members_of({"w": torch.ones(2)})
    del members[name]
    (tmp_path / "m.tar").write_bytes(packed(members))
    with pytest.raises(DamagedError, match=name):
        open_checkpoint(tmp_path / "m.tar")


def test_links_and_directories_are_no_members(tmp_path):
    """A link called “pickle” leads nowhere here."""
    import io
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:") as tar:
        for name in ("storages", "tensors", "pickle"):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(info)
    (tmp_path / "m.tar").write_bytes(buffer.getvalue())
    with opened(tmp_path / "m.tar") as (_, container):
        assert container.format == "tar archive" and not container.readable


def test_it_is_not_repaired_but_converted(tmp_path):
    """Edits are refused with the command that makes a file that can be repaired."""
    with (
        opened(saved({"w": torch.ones(2)}, tmp_path / "m.tar")) as (source, container),
        pytest.raises(RefusedError, match="torch tar, which cannot be repaired in place"),
    ):
        write(wanted_of(read(source, container), [Drop((("w",),))]), source)


@PLACES
def test_a_mangled_archive_is_read_or_refused(places, tmp_path):
    """Cut at many bytes, and with many bytes changed."""
    endure(tar_bytes({"w": torch.ones(2, 2), "v": torch.ones(3)[1:]}), tmp_path, places)
