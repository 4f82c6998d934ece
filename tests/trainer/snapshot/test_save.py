"""Saving together, and what happens when the disk takes no more."""

from __future__ import annotations

import json
import random
import resource
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from ckptdoctor.errors import WriteError
from ckptdoctor.trainer.config import SAVES, RunConfig
from ckptdoctor.trainer.snapshot import dcp, folders
from ckptdoctor.trainer.snapshot.folders import Position
from ckptdoctor.trainer.snapshot.save import save
from tests.trainer.forks import Forked
from tests.trainer.snapshot import full_disk, two_ranks
from tests.trainer.snapshot.toy import ALONE, Toy


def test_all_files(tmp_path):
    """A checkpoint has one file for each style, the training state and the truth, and nothing is left beside it."""
    config = RunConfig(out=str(tmp_path / "run"), save=SAVES, ema=True)
    folder = save(config, Toy(config), ALONE, Position(2, 57))
    assert folder == tmp_path / "run" / "epoch-0002-step-0057"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    names = {"training.pt", "truth.json", "model.pt", "wrapped.pt", "whole.pt", "legacy.pt", "model.safetensors", "dcp"}
    assert {path.name for path in folder.iterdir()} == {*names, "ema.pt"}
    assert folders.newest(tmp_path / "run") == folder


def test_the_tag_of_a_run_on_a_gpu(tmp_path):
    """Without --tag-device the tag is that of the device on which the model lies, not of the copy that is saved."""
    config = RunConfig(out=str(tmp_path), device="cuda")
    strategy = Toy(config)
    rng = {
        "cpu": torch.get_rng_state(),
        "cuda": [torch.zeros(16, dtype=torch.uint8)],
        "mps": None,
        "python": random.getstate(),
    }
    strategy._device = torch.device("cuda:1")
    folder = save(config, strategy, ALONE, Position(1), rng)
    truth = json.loads((folder / "truth.json").read_text())
    assert (truth["made"]["tag"], truth["files"]["model.pt"]["check"]) == ("cuda:1", ["D602"])
    tags = []
    torch.load(folder / "training.pt", map_location=lambda storage, tag: (tags.append(tag), storage)[1])
    assert tags.count("cpu") == 2  # the two generators


@contextmanager
def small_files(size):
    """A limit on the size of files; only inside the block, as what pytest prints may go to a file as well."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("style", [None, *SAVES])
@pytest.mark.parametrize("size", [0, 1000])
def test_no_room(tmp_path, style, size):
    """Where a file cannot be written to its end one sentence says so; nothing is left, and older checkpoints stay."""
    config = RunConfig(out=str(tmp_path), save=SAVES if style is None else (style,))
    strategy = Toy(config)
    old = save(config, strategy, ALONE, Position(1))
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    with pytest.raises(WriteError) as raised, small_files(size):
        save(config, strategy, ALONE, Position(2))
    assert raised.value.message.startswith(f"The checkpoint {tmp_path / 'epoch-0002'} could not be written: ")
    assert "earlier checkpoints are untouched" in raised.value.message
    assert "\n" not in raised.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-0001"]
    assert {path: path.read_bytes() for path in before} == before


def test_no_room_for_one_rank_file(tmp_path):
    """The same for what torch.distributed.checkpoint writes, whose errors come wrapped."""
    config = RunConfig(out=str(tmp_path), save=("dcp",))
    with pytest.raises(OSError, match="File too large"), small_files(100):
        dcp.write(tmp_path / "dcp", {}, Toy(config), ALONE)


def test_no_permission(tmp_path):
    """A place where nothing can be made is named."""
    (tmp_path / "file").write_text("")
    config = RunConfig(out=str(tmp_path / "file" / "run"))
    with pytest.raises(
        WriteError, match=r"file/run/epoch-0001 could not be written: Not a directory\. Free some space"
    ):
        save(config, Toy(config), ALONE, Position(1))


def test_a_bug_is_no_write_error(tmp_path):
    """An error that has nothing to do with writing keeps its own name."""
    config = RunConfig(out=str(tmp_path), save=("whole",))
    strategy = Toy(config)
    strategy.model.fc.register_buffer("bad", torch.ones(1, requires_grad=True) * 2)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        save(config, strategy, ALONE, Position(1))
    assert folders.newest(tmp_path) is None


def test_disk_full(tmp_path):
    """On a file system that is really full the sentence says so, and the older checkpoint is whole."""
    command = ["unshare", "--mount", "--", "true"]
    if shutil.which("unshare") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system")
    process = Forked(full_disk.main, tmp_path)
    said, complaint = process.communicate(timeout=60)
    assert process.returncode == 0, complaint
    seen = json.loads(said)
    assert seen["said"].startswith(f"The checkpoint {tmp_path / 'epoch-0002'} could not be written: ")
    assert seen["left"] == ["epoch-0001", "filler"]
    assert seen["epoch"] == 1
    assert list(tmp_path.iterdir()) == []


def test_two_ranks(tmp_path):
    """Two processes save together: one folder, generators of both, dcp from both; one that fails tells the other."""
    for process in [Forked(two_ranks.rank_main, rank, str(tmp_path)) for rank in (0, 1)]:
        _, complaint = process.communicate(timeout=100)
        assert process.returncode == 0, complaint
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first["folder"] == second["folder"] == str(tmp_path / "run" / "epoch-0001")
    assert first["goes_on"] and second["goes_on"]
    assert first["drawn"] != second["drawn"]
    assert first["failed"].startswith(f"The checkpoint {tmp_path / 'run' / 'epoch-0002'} could not be written: ")
    assert second["failed"].startswith("Another rank could not write the checkpoint")
    assert first["left"] == ["epoch-0001"]
    folder = Path(first["folder"])
    assert len(torch.load(folder / "training.pt")["rng"]) == 2
    plain = torch.load(folder / "model.pt")
    together = dcp.read(folder / "dcp", plain)
    assert all(torch.equal(together[key], plain[key]) for key in plain)
    truth = json.loads((folder / "truth.json").read_text())
    assert truth["files"]["wrapped.pt"]["check"] == ["N401"]
    assert truth["files"]["dcp"]["loads"] == "yes"
