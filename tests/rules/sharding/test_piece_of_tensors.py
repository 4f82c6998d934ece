"""X815: files that torch.distributed.checkpoint wrote for one rank, as safetensors."""

from __future__ import annotations

import shutil
import warnings

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from ckptdoctor.findings import Severity
from tests.rules.examined import found

_OTHER = "shard-00002-model-00001-of-00001.safetensors"


@pytest.fixture
def shard(tmp_path):
    """The only file of a save of one rank."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer = dcp.HuggingFaceStorageWriter(str(tmp_path), save_distributed=True)
        dcp.save({"w": torch.ones(4, 2), "b": torch.ones(4)}, storage_writer=writer, no_dist=True)
    (path,) = tmp_path.rglob("shard-*.safetensors")
    return path


def test_the_first_file_may_be_all(shard):
    """Alone, it is the whole save of one rank: that is information."""
    (finding,) = found(shard, "X815")
    assert finding.severity is Severity.INFO


def test_beside_another_it_is_a_piece(shard):
    """With the file of another rank beside it, both are pieces."""
    shutil.copy(shard, shard.parent / _OTHER)
    for path in (shard, shard.parent / _OTHER):
        (finding,) = found(path, "X815")
        assert finding.severity is Severity.WARNING
        assert "of 2 in the folder" in finding.message
        assert "consolidate_safetensors_files" in finding.advice


@pytest.mark.parametrize("told", ["", "[", "[1]", '{"w": 1}', '{"w": {"saved_offsets": "x"}}', "[" * 100_000])
def test_damaged_places(told, tmp_path):
    """Nonsense in the metadata is no piece that begins within, and never an error."""
    save_file({"w": torch.ones(2)}, tmp_path / _OTHER, {"DCP_SHARDING_INFO": told})
    (finding,) = found(tmp_path / _OTHER, "X815")
    assert "lacks the beginning" not in finding.message and finding.keys == ()
