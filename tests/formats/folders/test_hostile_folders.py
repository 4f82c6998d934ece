"""Folders that mean harm: names that no file can have, lists without an end, values that lie over each other."""

from __future__ import annotations

import io
import json
import pickle

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex

from ckptdoctor import formats
from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.errors import DamagedError, HostileError
from ckptdoctor.salvaging.salvage import salvage
from tests.work import growth

FIRST, INDEX = "model-00001-of-00002.safetensors", "model.safetensors.index.json"


def kinds(path):
    return {note.kind for note in formats.open_checkpoint(path).notes}


@pytest.mark.parametrize("name", ["\ud800.safetensors", "a\0b.safetensors", "../up.safetensors", "/dev/zero", "", ".."])
def test_names_that_no_file_has(name, tmp_path):
    """They are noted, also where the rest is salvaged."""
    folder = tmp_path / "m"
    folder.mkdir()
    save_file({"a": torch.ones(2)}, folder / FIRST)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": FIRST, "b": name}}))
    assert kinds(folder) & {NoteKind.FILE_MISSING, NoteKind.FILE_OUTSIDE}
    assert salvage(str(folder), str(tmp_path / "saved")).recovered == 1


def test_an_index_of_a_hundred_thousand_files(tmp_path):
    """No folder has so many: it is no index, and what lies there is read."""
    save_file({"a": torch.ones(2)}, tmp_path / FIRST)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {f"k{each}": f"f{each}" for each in range(100_000)}}))
    assert NoteKind.INDEX_WRONG in kinds(tmp_path)


@pytest.mark.slow
def test_thousands_of_sets_of_thousands_of_shards(tmp_path):
    """Sets are compared without naming what is missing, and few of them are told one by one."""
    for number in (500, 5_000):
        (tmp_path / str(number)).mkdir()
        for each in range(number):
            (tmp_path / str(number) / f"m{each}-00001-of-20000.bin").touch()
    assert growth(lambda number: formats.open_checkpoint(tmp_path / str(number)), 500, 5_000) < 40
    notes = formats.open_checkpoint(tmp_path / "5000").notes
    told = [note.message for note in notes if note.message.endswith("next to the weights that were read")]
    assert len(told) == 9
    assert told[-1] == "4,991 more files next to the weights that were read"


def test_digits_that_are_no_numbers(tmp_path):
    """A superscript is a digit to Unicode, but no number: it is no rank, and ranks are in order all the same."""
    step = tmp_path / "global_step1"
    step.mkdir()
    (tmp_path / "latest").write_text("global_step1")
    for rank in ("00", "02", "10", "²"):
        torch.save({"module": {"w": torch.ones(2)}}, step / f"mp_rank_{rank}_model_states.pt")
    contents = formats.open_checkpoint(tmp_path).tree
    assert [part for part, _ in contents.entries] == [f"mp_rank_{rank}_model_states" for rank in ("00", "02", "10")]


def test_values_that_lie_over_each_other(tmp_path):
    """A file of a distributed checkpoint is read a few times at most, however many values point to it."""
    saved = io.BytesIO()
    torch.save([1] * 1000, saved)
    keys = [f"k{each}" for each in range(100)]
    (tmp_path / "__0_0.distcp").write_bytes(saved.getvalue())
    places = {MetadataIndex(key): _StorageInfo("__0_0.distcp", 0, len(saved.getvalue())) for key in keys}
    states = {key: dcp.metadata.BytesStorageMetadata() for key in keys}
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Metadata(states, storage_data=places)))
    notes = formats.open_checkpoint(tmp_path).notes
    assert any("overlap" in note.message for note in notes)


def test_chunks_that_tensors_share(tmp_path):
    """A list of chunks that each of many tensors names is refused: it would be gone through for each."""
    chunks = [dcp.metadata.ChunkStorageMetadata(torch.Size([each]), torch.Size([1])) for each in range(100)]
    properties = dcp.metadata.TensorProperties(torch.float32)
    tensor = dcp.metadata.TensorStorageMetadata(properties, torch.Size([100]), chunks)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Metadata({f"t{each}": tensor for each in range(100)})))
    with pytest.raises(HostileError, match="more chunks"):
        formats.open_checkpoint(tmp_path)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Metadata({"t": tensor}, storage_data={})))
    (read,) = formats.open_checkpoint(tmp_path).tensors
    assert len(read.chunks) == 100
    assert issubclass(HostileError, DamagedError)
