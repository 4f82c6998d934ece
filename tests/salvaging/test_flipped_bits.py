"""Salvage flips a bit back that the checksum of a record locates, and says why that is right."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch

import ckptdoctor
from tests.commands import run_here

WEIGHTS = {"small": torch.randn(500, generator=torch.Generator().manual_seed(0)), "large": torch.arange(100_000.0)}


@pytest.fixture
def path(tmp_path):
    """A torch zip of a small record, whose checksum is believed, and a large one."""
    torch.save({**WEIGHTS, "step": 3}, tmp_path / "m.pt")
    return tmp_path / "m.pt"


def flip(path, key, count=1):
    """Flip a bit in the bytes of a tensor, or several in different bytes; returns the file as it was."""
    before = path.read_bytes()
    raw = bytearray(before)
    at = before.index(WEIGHTS[key].numpy().tobytes()) + 1000
    for number in range(count):
        raw[at + 3 * number] ^= 4
    path.write_bytes(raw)
    return before


def test_the_output_is_the_file_as_it_was(path):
    """Every byte, and the report names the bit and how often other damage looks the same."""
    before = flip(path, "small")
    report = ckptdoctor.salvage(path)
    (healed,) = report.healed
    with open(report.output, "rb") as file:
        assert file.read() == before
    assert (healed.path, healed.bit, healed.vouched) == (("small",), 2, "") and healed.chance < 1e-4
    assert not report.lost
    printed = run_here("salvage", "m.pt", "--force", cwd=path.parent)
    assert printed.returncode == 0 and b"except for 1 healed bit" in printed.stdout
    assert b"bit 2 of byte" in printed.stdout and b"in 1 of 268,435 cases" in printed.stdout


def test_a_large_record_needs_more_than_its_checksum(path):
    """It is lost, with the reason; what is healed next to it stays healed."""
    flip(path, "small")
    flip(path, "large")
    report = ckptdoctor.salvage(path)
    assert [each.path for each in report.lost] == [("large",)] and [each.path for each in report.healed] == [("small",)]
    assert "a flipped bit in byte" in report.lost[0].damage
    saved = torch.load(report.output)
    assert torch.equal(saved["small"], WEIGHTS["small"]) and list(saved) == ["small", "step"]


@pytest.mark.parametrize("by", ["seal", "sha256"])
def test_a_seal_or_a_published_checksum_decides(path, by):
    """Both records are as they were, and the report names what confirmed it."""
    before = path.read_bytes()
    if by == "seal":
        ckptdoctor.seal(path)
    else:
        path.with_name("m.pt.sha256").write_text(hashlib.sha256(before).hexdigest())
    flip(path, "small")
    flip(path, "large")
    done = run_here("salvage", "m.pt", "-o", "out.pt", "--format", "json", cwd=path.parent)
    healed = json.loads(done.stdout)["healed"]
    assert done.returncode == 0 and (path.parent / "out.pt").read_bytes() == before
    assert [(each["key"], by in each["vouched"]) for each in healed] == [("small", True), ("large", True)]


def test_a_seal_of_other_bytes_confirms_nothing(path):
    """The tensor stays lost."""
    before = flip(path, "large", count=2)
    ckptdoctor.seal(path)
    path.write_bytes(before)
    flip(path, "large")
    assert [each.path for each in ckptdoctor.salvage(path).lost] == [("large",)]


@pytest.mark.parametrize("count", [2, 3])
def test_more_than_one_flipped_bit_is_not_healed(path, count):
    """Nothing is guessed."""
    flip(path, "small", count)
    report = ckptdoctor.salvage(path)
    assert not report.healed and [each.path for each in report.lost] == [("small",)]


def test_shards_are_healed_file_by_file(path):
    """The report names the file that the bit is in."""
    folder = path.parent / "shards"
    folder.mkdir()
    for number, key in enumerate(WEIGHTS, 1):
        torch.save({key: WEIGHTS[key]}, folder / f"pytorch_model-0000{number}-of-00002.bin")
    flip(folder / "pytorch_model-00001-of-00002.bin", "small")
    report = ckptdoctor.salvage(folder)
    assert [(each.path, each.file) for each in report.healed] == [(("small",), "pytorch_model-00001-of-00002.bin")]
    assert not report.lost
