"""Folders of torch.distributed.checkpoint, written by torch itself, hold what ``dcp_to_torch_save`` makes of them."""

from __future__ import annotations

import os
import pickle
import shutil
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import ckptdoctor
from ckptdoctor import formats
from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import CkptDoctorError, DamagedError, NotACheckpointError, RefusedError
from tests.commands import leave_gloo
from tests.formats.folders.same import assert_same
from tests.trainer.forks import FORKED

SAMPLE = Path(__file__).parents[3] / "sample_ckpts" / "trained" / "fsdp" / "dcp"

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")


def contents():
    """Tensors of several kinds beside nested plain values, as one process has them."""
    base = torch.arange(35.0).reshape(5, 7)
    return {
        "model": {"w": base, "half": base.bfloat16(), "f8": base.to(torch.float8_e4m3fn), "turned": base.t()},
        "more": {"scalar": torch.tensor(3), "empty": torch.empty(0, 4), "bool": base > 3, "none": None},
        "list": [torch.ones(2), {"x": 1}, torch.zeros(1)],
        "epoch": 4,
        "name": "run",
        "object": {"pair": (1, 2)},
    }


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """What one process saves without a process group."""
    path = tmp_path_factory.mktemp("dcp") / "one"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(contents(), checkpoint_id=path, no_dist=True)
    return path


def as_torch_says(path, folder):
    """What torch makes of a distributed checkpoint in one process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp_to_torch_save(path, folder / "one.pt")
    return torch.load(folder / "one.pt", weights_only=False)


def test_one_process(one, tmp_path):
    """Keys in their order, shapes, values and plain values are those of dcp_to_torch_save."""
    assert_same(ckptdoctor.load(one), as_torch_says(one, tmp_path))


def test_headers_only(one):
    """The contents are found without reading values; every tensor lies in one of the files."""
    checkpoint = formats.open_checkpoint(one)
    assert (checkpoint.format, checkpoint.notes) == ("torch distributed checkpoint", ())
    assert checkpoint.size == sum(path.stat().st_size for path in one.iterdir())
    files = {storage.extent.file for storage in checkpoint.storages}
    assert files == {str(one / "__0_0.distcp")}
    assert len({storage.key for storage in checkpoint.storages}) == len(checkpoint.storages)


def work(rank, folder):
    """One of two processes with a model under FSDP2, its optimizer, and DTensors split along either side."""
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}.store", 2), rank=rank, world_size=2)
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    net(torch.randn(4, 5)).sum().backward()
    optimizer.step()
    model, optim = get_state_dict(net, optimizer)
    base = torch.arange(35.0).reshape(5, 7)
    spread = {
        "columns": distribute_tensor(base, mesh, [Shard(1)]),
        "rows": distribute_tensor(base.bfloat16(), mesh, [Shard(0)]),
        "everywhere": distribute_tensor(base, mesh, [Replicate()]),
        "short": distribute_tensor(torch.ones(1, 3), mesh, [Shard(0)]),  # the second rank has nothing of it
    }
    dcp.save({"model": model, "optim": optim, "spread": spread, "epoch": 4}, checkpoint_id=folder)
    leave_gloo()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What two processes save together."""
    path = tmp_path_factory.mktemp("dcp") / "two"
    mp.start_processes(work, (str(path),), nprocs=2, start_method=FORKED)
    return path


def test_two_processes(two, tmp_path):
    """FSDP2's and other DTensors are put together from the files of both ranks."""
    assert len(list(two.glob("*.distcp"))) == 2
    assert_same(ckptdoctor.load(two), as_torch_says(two, tmp_path))


def test_chunks_say_where_each_piece_belongs(two):
    """A tensor in several pieces has them as chunks, with where each begins; one in one piece has its bytes itself."""
    tensors = {tensor.path: tensor for tensor in formats.open_checkpoint(two).tensors}
    columns = tensors["spread", "columns"]
    assert columns.storage is None
    assert [(start, chunk.shape) for start, chunk in columns.chunks] == [((0, 0), (5, 4)), ((0, 4), (5, 3))]
    assert tensors["spread", "everywhere"].chunks == ()
    assert tensors["spread", "everywhere"].storage is not None
    assert columns.nbytes == 140 and not columns.moved


def test_the_sample_is_what_its_model_is():
    """The committed folder holds the tensors of the model.pt that was saved beside it."""
    model = torch.load(SAMPLE.parent / "model.pt", weights_only=True)
    assert_same(dict(sorted(ckptdoctor.load(SAMPLE).items())), dict(sorted(model.items())))


# ---- damage


def copied(path, folder):
    """A copy that may be damaged."""
    return Path(shutil.copytree(path, folder / "copy"))


def test_a_file_that_is_missing(two, tmp_path):
    """What lies in the other file is still there; loading what is not there is refused, not made up."""
    path = copied(two, tmp_path)
    (path / "__1_0.distcp").unlink()
    checkpoint = formats.open_checkpoint(path)
    assert [note.kind for note in checkpoint.notes] == [NoteKind.FILE_MISSING]
    with pytest.raises(DamagedError, match=r"__1_0\.distcp is missing"):
        ckptdoctor.load(path)


def test_a_file_that_was_cut_off(one, tmp_path):
    """What lies before the cut is read."""
    path = copied(one, tmp_path)
    os.truncate(path / "__0_0.distcp", (path / "__0_0.distcp").stat().st_size // 2)
    checkpoint = formats.open_checkpoint(path)
    assert NoteKind.FILE_DAMAGED in {note.kind for note in checkpoint.notes}
    assert any(storage.extent is None for storage in checkpoint.storages)
    assert any(storage.extent is not None for storage in checkpoint.storages)


def test_without_its_metadata(one, tmp_path):
    """Nothing can be found then; the reason is said."""
    path = copied(one, tmp_path)
    (path / ".metadata").unlink()
    with pytest.raises(NotACheckpointError, match=r"begins with a dot"):
        formats.open_checkpoint(path)


def test_repairs_are_refused(one):
    """The refusal names the command that makes one file of it."""
    with formats.opened(one) as (source, container):
        checkpoint = formats.read(source, container)
        with pytest.raises(RefusedError, match=f"ckptdoctor convert {one} {one}.pt"):
            formats.format_named(container.format).write(wanted_of(checkpoint, ()), source)


def test_places_outside_the_folder_are_not_opened(one, tmp_path):
    """A relative path that leads elsewhere is told and not followed."""
    path = copied(one, tmp_path)
    shutil.copy(path / "__0_0.distcp", tmp_path / "other.distcp")
    metadata = pickle.loads((path / ".metadata").read_bytes())
    for item in metadata.storage_data.values():
        item.relative_path = "../other.distcp"
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    checkpoint = formats.open_checkpoint(path)
    assert NoteKind.FILE_OUTSIDE in {note.kind for note in checkpoint.notes}
    assert all(storage.extent is None for storage in checkpoint.storages)


def edited(one, tmp_path, change):
    """The notes on a copy whose metadata was changed."""
    path = copied(one, tmp_path)
    metadata = pickle.loads((path / ".metadata").read_bytes())
    change(metadata)
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    return formats.open_checkpoint(path).notes


def test_a_shape_that_is_another(one, tmp_path):
    """What lies there is held against what the metadata says."""

    def change(metadata):
        chunk = metadata.state_dict_metadata["model.w"].chunks[0]
        chunk.sizes = torch.Size([7, 5])
        metadata.state_dict_metadata["model.w"].size = torch.Size([7, 5])

    assert [note.kind for note in edited(one, tmp_path, change)] == [NoteKind.TENSOR_ODD, NoteKind.STORAGE_MISSING]


def test_chunks_that_leave_elements_out(one, tmp_path):
    """A tensor of which a part was saved by nobody is told."""

    def change(metadata):
        metadata.state_dict_metadata["model.w"].size = torch.Size([6, 7])

    (note,) = edited(one, tmp_path, change)
    assert note.message == "model.w: 7 of 42 elements are in no chunk"


def test_a_list_that_claims_to_be_endless(one, tmp_path):
    """An index of a list is not believed: the place is shown as a dict."""

    def change(metadata):
        metadata.planner_data["list.0"] = ("list", 10**12)

    path = copied(one, tmp_path)
    metadata = pickle.loads((path / ".metadata").read_bytes())
    change(metadata)
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    assert set(ckptdoctor.load(path)["list"]) == {10**12, 1, 2}


def test_metadata_cut_at_every_offset(tmp_path):
    """A pickle that breaks off is damage, wherever it does."""
    path = copied(SAMPLE, tmp_path)
    data = (path / ".metadata").read_bytes()
    for end in range(0, len(data), 97):
        (path / ".metadata").write_bytes(data[:end])
        with pytest.raises(DamagedError, match=r"\.metadata: "):
            formats.open_checkpoint(path)


def test_metadata_with_any_byte_changed(tmp_path):
    """Whatever is in it, opening ends in contents or in one clear error."""
    path = copied(SAMPLE, tmp_path)
    data = (path / ".metadata").read_bytes()
    for at in range(0, len(data), 151):
        (path / ".metadata").write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            formats.open_checkpoint(path)
        except CkptDoctorError as error:
            assert error.message
