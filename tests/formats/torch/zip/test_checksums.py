"""Checksums are stated anew wherever an archive has them, and nowhere else."""

from __future__ import annotations

import zipfile

import pytest
import torch

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch.zip.checksums import restated


def stated(path, checksums):
    data = bytearray(path.read_bytes())
    with FileSource(path) as source:
        for at, new in restated(source, checksums):
            data[at : at + len(new)] = new
    path.write_bytes(data)


def repacked(path, tmp_path):
    """The same records as zipfile writes them: the checksum stands before the data."""
    other = tmp_path / "packed.pt"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return other


@pytest.mark.parametrize("pack", [lambda path, _: path, repacked], ids=["torch", "zipfile"])
def test_a_new_checksum_is_all_that_changes(pack, tmp_path):
    """Four bytes in the directory and four at the record; stated back, the file is what it was."""
    path = tmp_path / "a.pt"
    torch.save({"a": torch.rand(10), "b": torch.rand(20)}, path)
    path = pack(path, tmp_path)
    before = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        name = next(each for each in archive.namelist() if each.endswith("/data/1"))
        crc = archive.getinfo(name).CRC
    stated(path, {"1": crc ^ 0xFFFFFFFF})
    after = path.read_bytes()
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 8
    with zipfile.ZipFile(path) as archive:
        found = archive.getinfo(name).CRC
    assert found == crc ^ 0xFFFFFFFF
    stated(path, {"1": crc})
    assert path.read_bytes() == before


def test_what_is_compressed_cannot_be_replaced(tmp_path):
    """Its bytes in the file are others than those that are summed up."""
    path, packed = tmp_path / "a.pt", tmp_path / "packed.pt"
    torch.save({"a": torch.zeros(100)}, path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(RefusedError, match="is not stored unchanged in the archive"):
        stated(packed, {"0": 1})
    with pytest.raises(RefusedError):
        stated(path, {"7": 1})
