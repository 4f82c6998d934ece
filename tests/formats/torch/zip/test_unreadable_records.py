"""Records that are encrypted, or compressed in a way that torch does not read: their bytes are shown to nobody."""

from __future__ import annotations

import zlib

import pytest
import torch

import ckptdoctor
from tests.commands import run_here
from tests.formats.torch.zip.forge import assembled, part, parts_of, saved

WEIGHTS = {"w": torch.arange(6.0), "v": torch.ones(3)}


@pytest.fixture(params=[{"flags": 0x0809}, {"flags": 0x0828}, {"flags": 0x0849}, {"method": 12}], ids=str)
def path(request, tmp_path):
    """An archive in which the values of w are other bytes, with the checksum of those that they stand for."""
    parts = parts_of(saved(WEIGHTS))
    record = part(parts, "data/0")
    crc, size = zlib.crc32(record.data), len(record.data).to_bytes(4, "little")
    record.data = bytes(range(100, 100 + len(record.data)))
    record.local, record.central = request.param, {**request.param, "crc": crc}
    record.footer = b"PK\7\x08" + crc.to_bytes(4, "little") + size * 2
    (tmp_path / "x.pt").write_bytes(assembled(parts))
    with pytest.raises(RuntimeError, match="failed retrieving file meta-data for data/0: unsupported"):
        torch.load(tmp_path / "x.pt")
    return tmp_path / "x.pt"


def test_check_names_the_record(path):
    """As an error, without a command that would not help."""
    (finding,) = [each for each in ckptdoctor.check(path).findings if each.code == "F011"]
    assert "archive/data/0 is" in finding.message and finding.commands == ("ckptdoctor salvage FILE",)
    unusual = [each for each in ckptdoctor.check(path).findings if each.code == "P207"]
    assert unusual and not any("convert" in str(each.advice) for each in unusual)


@pytest.mark.parametrize("output", ["out.pt", "out.safetensors"])
@pytest.mark.parametrize("command", [("convert", "x.pt"), ("fix", "x.pt", "--dtype", "bf16", "-o")], ids=str)
def test_nothing_is_made_of_them(path, command, output):
    """A conversion and a cast are refused."""
    done = run_here(*command, output, cwd=path.parent)
    assert done.returncode == 1 and [each.name for each in path.parent.iterdir()] == ["x.pt"]


def test_they_are_not_loaded(path):
    """Others are, with strict=False."""
    with pytest.raises(ckptdoctor.DamagedError):
        ckptdoctor.load(path)
    with pytest.warns(UserWarning, match="is damaged"):
        assert torch.equal(ckptdoctor.load(path, strict=False)["v"], WEIGHTS["v"])


def test_no_statistics_are_made_of_them(path):
    """It is said that they were not read."""
    said = run_here("show", "x.pt", "--stats", cwd=path.parent).stdout.decode()
    assert "w    not read" in said and "The values of 1 tensor were not read" in said


def test_the_others_are_salvaged(path):
    """All of them."""
    done = run_here("salvage", "x.pt", "-o", "out.pt", cwd=path.parent)
    assert done.returncode == 1
    assert list(torch.load(path.parent / "out.pt")) == ["v"]
