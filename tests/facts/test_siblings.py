"""What lies beside a checkpoint is looked at with care: few bytes, no way out of the folder, local files only."""

from __future__ import annotations

import os
import time

import numpy
import pytest
import safetensors.numpy

from ckptdoctor.facts.siblings import LONGEST, blob_of, folder_of, read_small
from tests.commands import run_here


def test_files_beside_are_listed_with_their_sizes(tmp_path):
    """Regular files only: folders and pipes are no siblings."""
    (tmp_path / "model.pt").write_bytes(b"12345")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "sub").mkdir()
    os.mkfifo(tmp_path / "pipe")
    folder = folder_of(str(tmp_path / "model.pt"))
    assert folder.names == {"model.pt", "config.json"}
    assert folder.own is not None
    assert folder.own.size == 5
    assert folder.read("config.json") == "{}"
    assert folder.read("sub") == folder.read("missing") == ""


def test_a_folder_has_no_file_of_its_own(tmp_path):
    """Of a checkpoint in several files, the siblings are the files in it."""
    (tmp_path / "config.json").write_text("{}")
    folder = folder_of(str(tmp_path))
    assert (folder.name, folder.own, folder.names) == ("", None, {"config.json"})


@pytest.mark.parametrize(
    "path", ["", "https://example.org/a/model.pt", "s3://bucket/model.pt", "nowhere/model.pt", "a\0b"]
)
def test_what_is_no_local_file_has_no_siblings(path):
    """Nothing is listed for addresses, and nothing raised for names that no file can have."""
    assert folder_of(path).names == frozenset()


@pytest.mark.parametrize("later", [0, 3600], ids=["at once", "an hour later"])
def test_a_file_that_comes_later_is_seen(later, tmp_path, monkeypatch):
    """What is remembered of a folder holds until it changes, and nothing is where that has just happened."""
    monkeypatch.setattr("time.time_ns", lambda now=time.time_ns: now() + later * 10**9)
    (tmp_path / "model.pt").write_bytes(b"1")
    assert folder_of(str(tmp_path / "model.pt")).names == {"model.pt"}
    time.sleep(0.02)  # the clock of a file system has ticks
    (tmp_path / "model.pt.tmp").write_bytes(b"1")
    assert folder_of(str(tmp_path / "model.pt")).names == {"model.pt", "model.pt.tmp"}
    time.sleep(0.02)
    (tmp_path / "model.pt.tmp").rename(tmp_path / "next.pt")
    assert folder_of(str(tmp_path / "model.pt")).names == {"model.pt", "next.pt"}


def test_a_folder_is_listed_as_often_for_many_checkpoints_as_for_few(tmp_path, monkeypatch):
    """Otherwise twice as many take four times as long: each looks at the names of all others."""
    monkeypatch.setattr("time.time_ns", lambda now=time.time_ns: now() + 3600 * 10**9)
    listed = []
    monkeypatch.setattr("os.scandir", lambda path=".", scandir=os.scandir: listed.append(path) or scandir(path))
    for number in (5, 30):
        folder = tmp_path / str(number)
        folder.mkdir()
        for at in range(number):
            (folder / f"step_{at}.safetensors").write_bytes(safetensors.numpy.save({"a": numpy.ones(2)}))
        assert f"{number} files" in run_here("check", folder, cwd=tmp_path).stdout.decode()
    assert 0 < listed.count(str(tmp_path / "5")) == listed.count(str(tmp_path / "30"))


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    """But for those of the cache of huggingface_hub, whose form is exact."""
    (tmp_path / "secret.txt").write_text("secret")
    snapshot = tmp_path / "models--a--b" / "snapshots" / ("0" * 40)
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    digits = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
    (blobs / digits).write_text("{}")
    (snapshot / "config.json").symlink_to(f"../../blobs/{digits}")
    (snapshot / "evil.json").symlink_to("../../../secret.txt")
    (snapshot / "model.pt").write_bytes(b"1")
    folder = folder_of(str(snapshot / "model.pt"))
    assert folder.names == {"model.pt", "config.json"}
    assert folder.read("config.json") == "{}"
    assert blob_of(str(snapshot / "config.json")) == digits
    assert blob_of(str(snapshot / "evil.json")) == blob_of(str(snapshot / "model.pt")) == ""
    assert read_small(str(snapshot / "evil.json")) == ""


def test_only_small_texts_are_read(tmp_path):
    """What is too long, or no text, is taken for nothing."""
    (tmp_path / "long").write_bytes(b" " * (LONGEST + 1))
    (tmp_path / "odd").write_bytes(b"\xff\xfe\xfa")
    os.mkfifo(tmp_path / "pipe")
    assert [read_small(str(tmp_path / name)) for name in ("long", "odd", "pipe", "missing")] == [""] * 4
