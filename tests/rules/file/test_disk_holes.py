"""Holes of sparse files: what a file system never got, found without ``--deep``."""

from __future__ import annotations

import os
import sys

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.findings import Severity
from ckptdoctor.formats import open_checkpoint
from ckptdoctor.rules.file import zero_filled_region
from ckptdoctor.rules.file.zero_filled_region import holes_in, unwritten
from tests.rules.examined import found

BLOCK = 64 << 10
TENSORS = {"a.weight": torch.randn(300, 1000), "b.weight": torch.randn(300, 1000), "n": torch.arange(100_000)}

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files are not sparse there by themselves")


def saved(path):
    """A file of torch's or of safetensors."""
    torch.save(TENSORS, path) if path.suffix == ".pt" else save_file(TENSORS, path, {"format": "pt"})
    return path


def with_hole(path, start, stop):
    """The file without these bytes, as a download leaves it whose part never came."""
    data = path.read_bytes()
    path.unlink()
    with path.open("wb") as file:
        file.write(data[:start])
        file.seek(stop)
        file.write(data[stop:])
    if not holes_in(str(path)):
        pytest.skip("this file system has no holes")
    return path


@pytest.mark.parametrize(("name", "severity"), [("m.pt", Severity.ERROR), ("m.safetensors", Severity.WARNING)])
def test_a_part_that_never_came_is_found(tmp_path, name, severity):
    """At once, and with the same words as a deep examination; a checksum proves it where there is one."""
    path = with_hole(saved(tmp_path / name), 14 * BLOCK, 17 * BLOCK)
    (finding,) = found(path, "F010")
    assert finding.severity is severity
    assert "196,6" in finding.message
    assert 'weight"' in finding.message
    assert found(path, "F010", deep=True) == [finding]


def test_zeros_that_were_meant_are_none(tmp_path):
    """A sparse copy of a pruned weight: its checksum fits."""
    weight = torch.randn(300, 1000)
    weight[50:250] = 0
    path = tmp_path / "m.pt"
    torch.save({"a.weight": weight}, path)
    at = path.read_bytes().index(bytes(4 * BLOCK))
    start = -(-at // BLOCK) * BLOCK
    with_hole(path, start, start + 3 * BLOCK)
    assert found(path, "F010") == []
    assert found(path, "F010", deep=True) == []


def test_a_hole_in_integers_says_nothing(tmp_path):
    """Tables of zeros are common."""
    path = tmp_path / "m.safetensors"
    save_file({"n": torch.arange(100_000), "w": torch.randn(10)}, path, {"format": "pt"})
    with_hole(path, 2 * BLOCK, 6 * BLOCK)
    assert found(path, "F010") == []


def test_a_whole_file_has_none(tmp_path):
    """One look at its length and its blocks."""
    path = saved(tmp_path / "m.pt")
    assert holes_in(str(path)) == ()
    assert unwritten(open_checkpoint(str(path))) == ()


def test_what_cannot_be_asked_has_none(tmp_path, monkeypatch):
    """No such file, a folder, a name that no file can have, and systems without the question."""
    for path in (tmp_path / "gone", tmp_path, "\0", "https://example.org/m.pt"):
        assert holes_in(str(path)) == ()
    path = with_hole(saved(tmp_path / "m.pt"), 2 * BLOCK, 6 * BLOCK)
    monkeypatch.delattr(os, "SEEK_HOLE")
    assert holes_in(str(path)) == ()


def test_what_is_read_for_it_has_a_limit(tmp_path, monkeypatch):
    """A terabyte of holes is left to a deep examination."""
    path = with_hole(saved(tmp_path / "m.pt"), 2 * BLOCK, 6 * BLOCK)
    monkeypatch.setattr(zero_filled_region, "_READ", 1000)
    assert found(path, "F010") == []
    assert len(found(path, "F010", deep=True)) == 1


def test_a_hole_at_the_end_is_one(tmp_path):
    """Where nothing follows, there is no data to be found behind it."""
    path = tmp_path / "raw"
    with path.open("wb") as file:
        file.write(b"x" * BLOCK)
        file.truncate(4 * BLOCK)
    if holes_in(str(path)):
        assert holes_in(str(path)) == ((BLOCK, 4 * BLOCK),)
