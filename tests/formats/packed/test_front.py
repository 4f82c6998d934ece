"""Of a large compressed file with its header in front, no more is unpacked where headers are all that is wanted."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import struct
import zlib

import pytest
import torch
from safetensors.torch import load, save_file

import ckptdoctor
from ckptdoctor import formats
from ckptdoctor.checkpoint import FileSource, NoteKind
from ckptdoctor.errors import CkptDoctorError, DamagedError, TruncatedError
from ckptdoctor.formats.packed import front, scratch
from tests.commands import run_anew

WAYS = {  # as fast as each can: noise does not become smaller by trying harder
    "gz": lambda data: gzip.compress(data, 1, mtime=0),
    "bz2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "zst": lambda data: pytest.importorskip("zstandard").compress(data),
    "z": lambda data: zlib.compress(data, 1),
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE, preset=0),
}
ZEROS = 200_000_000


@pytest.fixture(autouse=True)
def clean():
    scratch.remove()  # what other tests have unpacked
    yield
    scratch.remove()


@pytest.fixture
def always(monkeypatch):
    """Every file counts as large."""
    monkeypatch.setattr(front, "SMALL", 0)


def saved(folder):
    """A safetensors file with values that no program makes smaller."""
    random_ = torch.Generator().manual_seed(0)
    weights = {f"module.layer{index}.weight": torch.randn(32, 512, generator=random_) for index in range(40)}
    save_file(weights, folder / "m.safetensors", {"format": "pt"})
    return (folder / "m.safetensors").read_bytes()


def saved_before_1_6(folder):
    """The same values in a file as torch wrote them before 1.6."""
    weights = load((folder / "m.safetensors").read_bytes() if (folder / "m.safetensors").exists() else saved(folder))
    torch.save(weights, folder / "m.pt", _use_new_zipfile_serialization=False)
    return (folder / "m.pt").read_bytes()


def unpacked():
    """The names of what lies unpacked."""
    folder = scratch._SCRATCH.folder
    return [] if folder is None else [name for name in os.listdir(folder) if name != ".lock"]


def bomb(folder, size=ZEROS, header_size=None):
    """A few hundred kilobytes that unpack to a header and so many zeros."""
    claimed = size if header_size is None else header_size
    header = json.dumps({"a": {"dtype": "F32", "shape": [claimed // 4], "data_offsets": [0, claimed]}}).encode()
    path = folder / "bomb.safetensors.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in range(size // 10_000_000):
            file.write(bytes(10_000_000))
    return path


@pytest.mark.parametrize("way", WAYS)
def test_headers_are_read_without_the_rest(way, tmp_path, always):
    """Whatever it is packed in: the same tensors and findings, nothing is unpacked, and what was not read is said."""
    data = saved(tmp_path)
    path = tmp_path / f"m.safetensors.{way}"
    path.write_bytes(WAYS[way](data))
    plain, report = ckptdoctor.check(tmp_path / "m.safetensors"), ckptdoctor.check(path)
    assert unpacked() == []
    assert {each.code for each in report.findings} == {each.code for each in plain.findings} | {"C102"}
    assert [(each.path, each.shape) for each in report.checkpoint.tensors] == [
        (each.path, each.shape) for each in plain.checkpoint.tensors
    ]
    assert (report.checkpoint.size, report.checkpoint.format) == (len(data), "safetensors")
    told = [each.what for each in report.skipped]
    assert (f"all but the header: whether the file has the {len(data):,} bytes that it announces, and no more") in told
    checkpoint = ckptdoctor.open(path)
    assert [note.kind for note in checkpoint.notes] == [NoteKind.ARCHIVE_WRAPPED, NoteKind.NOT_EXAMINED]
    assert unpacked() == []


@pytest.mark.parametrize("way", ["gz", "xz"])
def test_pickles_in_front_are_read_without_the_rest(way, tmp_path, always):
    """A file of torch before 1.6 has its pickles in front, and they say where everything is."""
    data = saved_before_1_6(tmp_path)
    path = tmp_path / f"m.pt.{way}"
    path.write_bytes(WAYS[way](data))
    plain, report = ckptdoctor.check(tmp_path / "m.pt"), ckptdoctor.check(path)
    assert unpacked() == []
    assert {each.code for each in report.findings} == {each.code for each in plain.findings} | {"C102"}
    shown = [[(t.path, t.shape, t.storage.extent.offset) for t in each.checkpoint.tensors] for each in (plain, report)]
    assert shown[0] == shown[1] and len(shown[0]) == 40
    assert (report.checkpoint.size, report.checkpoint.format) == (len(data), "torch legacy")
    told = [each.what for each in report.skipped]
    assert (f"all but the header: whether the file has the {len(data):,} bytes that it announces, and no more") in told


@pytest.mark.slow
@pytest.mark.parametrize("way", ["gz", "xz", "z"])
def test_what_lies_behind_the_header_is_not_even_looked_at(way, tmp_path, always):
    """Damage further back changes nothing of what the header says; a deep examination finds it."""
    path = tmp_path / f"m.safetensors.{way}"
    data = bytearray(WAYS[way](saved(tmp_path)))
    data[len(data) * 3 // 4 :] = bytes(len(data) - len(data) * 3 // 4)
    path.write_bytes(data)
    report = ckptdoctor.check(path)
    assert len(report.checkpoint.tensors) == 40
    assert any(each.what.startswith("all but the header") for each in report.skipped)
    deep = ckptdoctor.check(path, deep=True)
    assert "cannot be unpacked" in deep.findings[0].message
    with pytest.raises(DamagedError):
        ckptdoctor.load(path)


@pytest.mark.parametrize("change", [lambda data: data[:-4], lambda data: data + b"more"], ids=["cut", "followed"])
def test_a_deep_examination_says_how_many_bytes_there_are(change, tmp_path, always):
    """What is missing of the values, or follows them, is found by unpacking everything; headers promise nothing."""
    path = tmp_path / "m.safetensors.gz"
    path.write_bytes(gzip.compress(change(saved(tmp_path)), mtime=0))
    ends = {NoteKind.TRUNCATED, NoteKind.TRAILING_BYTES}
    assert not ends & {note.kind for note in ckptdoctor.check(path).checkpoint.notes}
    deep = ckptdoctor.check(path, deep=True)
    assert ends & {note.kind for note in deep.container.notes}
    assert not any(each.what.startswith("all but the header") for each in deep.skipped)
    assert [each.code for each in deep.findings if each.code.startswith("F")]


def test_a_bomb_costs_its_header(tmp_path):
    """check and show take no room, and say that only the header was looked at."""
    path = bomb(tmp_path)
    room = tmp_path / "room"
    room.mkdir()
    result = run_anew("check", path, cwd=tmp_path, env={**os.environ, "TMPDIR": str(room)})
    assert b"200 MB" in result.stdout and b"Not examined: all but the header" in result.stdout.replace(b"\n", b" ")
    result = run_anew("show", path, cwd=tmp_path, env={**os.environ, "TMPDIR": str(room)})
    assert result.returncode == 0 and b"[50000000]" in result.stdout
    assert b"Not examined: all but the header" in result.stderr
    assert os.listdir(room) == []
    assert ckptdoctor.check(path).error is None
    assert unpacked() == []


def test_only_a_sound_header_in_front_is_enough(tmp_path, always):
    """Another format, a broken entry, a broken header: all of it is unpacked, and it is said what is wrong."""
    torch.save({"a": torch.ones(3)}, tmp_path / "m.pt")
    inside = {
        "torch.gz": (tmp_path / "m.pt").read_bytes(),
        "entry.gz": struct.pack("<Q", 14) + b'{"a":{"d":1}} ',
        "header.gz": struct.pack("<Q", 12) + b'{"a":{"d":1}',
        "cut.gz": struct.pack("<Q", 1000) + b'{"a":{"d":1}',
    }
    for name, data in inside.items():
        (tmp_path / name).write_bytes(gzip.compress(data, mtime=0))
        report = ckptdoctor.check(tmp_path / name)
        assert not any(each.what.startswith("all but the header") for each in report.skipped), name
        assert [each.code for each in report.findings if each.code != "C102"] or name == "torch.gz"


def test_small_files_are_unpacked_whole(tmp_path):
    """What takes a moment is looked at as a whole, and nothing is left open about it."""
    (tmp_path / "m.safetensors.gz").write_bytes(gzip.compress(saved(tmp_path), mtime=0))
    report = ckptdoctor.check(tmp_path / "m.safetensors.gz")
    assert not any(each.what.startswith("all but the header") for each in report.skipped)
    assert len(unpacked()) == 1


def test_any_part_can_be_read_in_any_order(tmp_path, always):
    """Bytes behind the header are those of the file, however far; past the end there are none."""
    data = saved(tmp_path)
    (tmp_path / "m.gz").write_bytes(gzip.compress(data, mtime=0))
    random_ = random.Random(3)
    with FileSource(tmp_path / "m.gz") as packed:
        inside = front.front_of(packed, formats.examine(packed))
        for _ in range(20):
            start = random_.randrange(len(data))
            stop = random_.randrange(start, len(data) + 1)
            assert inside.read(start, stop - start) == data[start:stop]
        with pytest.raises(TruncatedError):
            inside.read(len(data) - 1, 2)


def test_a_header_that_claims_too_much_ends_in_an_error(tmp_path):
    """Where there is less than the header says, reading on says so."""
    path = bomb(tmp_path, 10_000_000, header_size=1 << 40)
    assert ckptdoctor.check(path).checkpoint.size > 1 << 40
    with formats.opened(path, headers=True) as (source, _), pytest.raises(CkptDoctorError, match="end after"):
        source.read(20_000_000_000, 8)
