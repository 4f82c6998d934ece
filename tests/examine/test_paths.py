"""Which files a command line means."""

import json
import os
import re
import zipfile

import pytest
import torch

from ckptdoctor.errors import UnreadableError
from ckptdoctor.examine.paths import require_openable
from tests.commands import run_here


def examined(*patterns, stdin=b""):
    """The paths that ``check`` reports on, in its order."""
    result = run_here("check", *patterns, "--format", "json", cwd=".", stdin=stdin)
    return [file["path"] for file in json.loads(result.stdout)["files"]]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A directory with checkpoints, other files, hidden ones, and a link."""
    monkeypatch.chdir(tmp_path)
    safetensors = (2).to_bytes(8, "little") + b"{}"
    for name, data in {
        "runs/b.pt": b"",
        "runs/a.SAFETENSORS": b"",
        "runs/deep/er/c.bin": b"text",
        "runs/blob": b"PK\x03\x04....",
        "runs/5b1e": safetensors,
        "runs/model.pkl": b"\x80\x02.",
        "runs/notes.txt": b"hello",
        "runs/README": b"hello",
        "runs/.hidden.pt": b"",
        "runs/.cache/d.pt": b"",
        "empty/notes.txt": b"",
        "odd[1].pt": b"",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    os.symlink(tmp_path / "runs", tmp_path / "runs" / "loop")


def test_a_directory_gives_its_checkpoints(tree):
    """A directory is searched below: known suffixes, and other names that begin like a checkpoint; hidden ones not."""
    names = ["runs/5b1e", "runs/a.SAFETENSORS", "runs/b.pt", "runs/blob", "runs/model.pkl", "runs/deep/er/c.bin"]
    assert examined("runs") == names


def test_a_named_file_is_taken_whatever_it_is_called(tree):
    """A path that exists is examined even when its name says nothing, or looks like a glob."""
    assert examined("runs/notes.txt", "odd[1].pt") == ["runs/notes.txt", "odd[1].pt"]


def test_globs(tree):
    """A pattern gives the files that match, sorted, and ** goes to any depth."""
    assert examined("runs/*.pt") == ["runs/b.pt"]
    assert "runs/deep/er/c.bin" in examined("runs/**/*.bin")


def test_numbers_in_names_are_in_their_order(tree):
    """Epoch 2 comes before epoch 10, in a folder, below it and of a pattern."""
    wanted = [f"steps/{name}" for name in ("e_2.pt", "e_10.pt", "s9/m.pt", "s10/m.pt")]
    for name in wanted:
        os.makedirs(os.path.dirname(name), exist_ok=True)
        open(name, "wb").close()
    assert examined("steps") == wanted
    assert examined("steps/*.pt") == wanted[:2]


def test_each_file_once_in_the_order_asked_for(tree):
    """A file that several patterns mean is examined once, where it was first asked for."""
    assert examined("runs/b.pt", "-", "runs")[:3] == ["runs/b.pt", "-", "runs/5b1e"]
    assert examined("runs/b.pt", "runs/*.pt") == ["runs/b.pt"]


def test_what_is_not_there_is_left_for_the_reader_to_report(tree):
    """A missing path, or a pattern without a match, stays in the list."""
    assert examined("missing.pt", "none/*.pt") == ["missing.pt", "none/*.pt"]


def test_a_directory_without_checkpoints_is_refused(tree):
    """Nothing to examine is never taken for nothing wrong."""
    result = run_here("check", "empty", cwd=".")
    assert (result.returncode, result.stdout) == (2, b"") and b"empty holds no checkpoint" in result.stderr


def test_a_folder_that_is_one_checkpoint_stands_for_itself(tmp_path, monkeypatch):
    """Neither the parts of a distributed checkpoint nor shards are taken for checkpoints; a model's one file is."""
    monkeypatch.chdir(tmp_path)
    names = ("dcp/.metadata", "dcp/__0_0.distcp", "hf/model.safetensors.index.json", "hf/model-1.safetensors")
    for name in (*names, "one/config.json", "one/model.safetensors", "loose/a.pt", "loose/b.pt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}" if name.endswith("json") else b"PK\x03\x04")
    assert sorted(examined(".")) == ["./dcp", "./hf", "./loose/a.pt", "./loose/b.pt", "./one/model.safetensors"]


def test_what_can_be_opened(tree):
    """Files, folders and members of archives are let through, and addresses, which nothing here is asked about."""
    with zipfile.ZipFile("runs/packed.zip", "w") as archive:
        archive.writestr("a.pt", b"")
    for path in ("runs/b.pt", "runs", "runs/packed.zip/a.pt", "https://nowhere.invalid/a.pt"):
        require_openable(path)


@pytest.mark.parametrize("path", ["modle.pt", os.devnull])
def test_what_cannot_be_opened(tree, path):
    """It is said with its path."""
    with pytest.raises(UnreadableError, match=re.escape(path)):
        require_openable(path)


def test_standard_input_becomes_a_file_for_a_while(tmp_path, monkeypatch):
    """The bytes of a stream are read as those of a file, and leave nothing behind."""
    torch.save({"fc.weight": torch.randn(900, 900)}, tmp_path / "m.pt")
    (tmp_path / "room").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "room"))
    given = (tmp_path / "m.pt").read_bytes()
    result = run_here("check", "-", "--deep", "--format", "json", cwd=tmp_path, stdin=given)
    (file,) = json.loads(result.stdout)["files"]
    assert (file["path"], file["summary"]["bytes"], file["summary"]["tensors"]) == ("-", len(given), 1)
    assert os.listdir(tmp_path / "room") == []
