"""Bits that were flipped in real files come back to the last byte; other damage is never called healed."""

from __future__ import annotations

import pytest
import torch

import ckptdoctor
from ckptdoctor.errors import CkptDoctorError
from tests.grafting.copies import places

SIZES = (1, 3, 40, 500, 6_000)  # elements: a checksum is believed by itself up to 53 kB


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A checkpoint as torch saved it, and where its storages are."""
    path = tmp_path_factory.mktemp("whole") / "whole.pt"
    torch.manual_seed(3)
    torch.save({f"layer{number}": torch.randn(size) for number, size in enumerate(SIZES)}, path)
    return path, list(places(path).values())


def healed(path, out):
    """What ``salvage`` and ``graft`` make of a damaged file: the reports, None where they refuse."""
    made = []
    for function in (ckptdoctor.salvage, lambda path, out, force: ckptdoctor.graft(path, None, out, force=force)):
        try:
            made.append((function(path, out, force=True), out.read_bytes()))
        except CkptDoctorError:
            made.append(None)
    return made


def flip(raw, bit):
    """Flip one bit."""
    raw[bit // 8] ^= 1 << bit % 8


@pytest.mark.slow
def test_planted_flips_are_healed_to_the_identical_file(whole, tmp_path, scale):
    """By salvage and by graft, in a storage of any size: ten thousand of them, or as many as there is time for."""
    path, where = whole
    before = path.read_bytes()
    for _, chances in scale.cases(10_000, 20):
        start, length = chances.choice(where)
        raw = bytearray(before)
        flip(raw, 8 * start + chances.randrange(8 * length))
        (tmp_path / "bad.pt").write_bytes(raw)
        for report, written in healed(tmp_path / "bad.pt", tmp_path / "out.pt"):
            assert len(report.healed) == 1
            assert report.healed[0].chance <= 1e-4
            assert written == before


def other_damage(raw, where, chances):
    """Several bits of one storage, a burst, a zeroed sector, moved bytes, or a cut end."""
    kind = chances.choice(["bits", "burst", "sector", "moved", "cut"])
    start, length = chances.choice(where)
    if kind == "bits":
        for bit in chances.sample(range(8 * length), chances.choice([2, 2, 3, 4])):
            flip(raw, 8 * start + bit)
    elif kind == "burst":
        at = chances.randrange(start, start + length)
        size = chances.randrange(1, 65)
        raw[at : at + size] = chances.randbytes(len(raw[at : at + size]))
    elif kind == "sector":
        at = chances.randrange(0, len(raw)) // 512 * 512
        raw[at : at + 512] = bytes(len(raw[at : at + 512]))
    elif kind == "moved":
        at, other = [chances.randrange(len(raw) - 16) for _ in range(2)]
        raw[at : at + 16] = raw[other : other + 16]
    else:
        del raw[chances.randrange(len(raw)) :]


@pytest.mark.slow
def test_other_damage_is_never_called_healed_wrongly(whole, tmp_path, scale):
    """A storage that counts as healed has its bytes; the printed chance says how often one of so many would not."""
    path, where = whole
    before = path.read_bytes()
    of = {f"layer{number}": before[start : start + length] for number, (start, length) in enumerate(where)}
    wrong, expected = 0, 0.0
    for _, chances in scale.cases(10_000, 20):
        raw = bytearray(before)
        other_damage(raw, where, chances)
        if raw == before:
            continue
        (tmp_path / "bad.pt").write_bytes(raw)
        expected += 8 * 4 * max(SIZES) / 2**32
        for made in healed(tmp_path / "bad.pt", tmp_path / "out.pt"):
            if made is None:
                continue
            report, written = made
            wrong += any(of[each.path[-1]] not in written for each in report.healed)
    assert wrong <= 3 * expected
