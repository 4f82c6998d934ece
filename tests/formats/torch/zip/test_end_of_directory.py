"""The end of an archive: comments, two ends, zip64, and bytes where none belong."""

import struct

import pytest
import torch

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.errors import DamagedError, HostileError, NotACheckpointError, TruncatedError
from tests.formats.torch.zip.forge import CONTENTS, assembled, directory_of, loaded, noted, noticed, parts_of, saved


def test_trailing_bytes(tmp_path):
    """Bytes behind the archive are counted; torch ignores them."""
    data = saved(CONTENTS)
    directory = directory_of(data + b"x" * 100, tmp_path)
    assert noted(directory, NoteKind.TRAILING_BYTES, "100 bytes follow").offset == len(data) == directory.end
    assert directory.repairable


@pytest.mark.parametrize("more", [2_000, 2_700, 4_095, 4_200, 6_000, 8_300, 12_000, 20_000, 65_000])
@pytest.mark.parametrize("size", [1, 700, 5_000])
def test_whether_torch_finds_an_end_that_bytes_follow(tmp_path, size, more):
    """Of a small archive it does not always: it is asked itself."""
    data = saved({"w": torch.ones(size)}) + bytes(more)
    directory = directory_of(data, tmp_path)
    missed = any(note.kind is NoteKind.ZIP_UNUSUAL and "does not find" in note.message for note in directory.notes)
    ignored = noted(directory, NoteKind.TRAILING_BYTES, "follow the end").message.endswith("torch ignores them")
    (tmp_path / "x.pt").write_bytes(data)
    if missed:
        with pytest.raises(OSError, match="Invalid argument"):
            torch.load(tmp_path / "x.pt")
    else:
        assert torch.load(tmp_path / "x.pt")["w"].numel() == size
    assert missed is not ignored


def test_comment(tmp_path, parts):
    """A comment is no trailing bytes."""
    assert noticed(assembled(parts, comment=b"hello"), tmp_path).notes == ()


def test_comment_cut_short(tmp_path, parts):
    """A comment that is shorter than announced is pointed out."""
    data = assembled(parts, comment=b"hello")[:-2]
    noted(noticed(data, tmp_path), NoteKind.ZIP_DAMAGED, "announces a comment of 5 bytes")


def test_end_record_in_the_comment(tmp_path, parts):
    """A second archive whose end lies in the first one's comment: torch reads the second, others the first."""
    other = parts_of(saved({"z": torch.ones(2)}))
    second = assembled(other, before=b"")
    first_size = len(assembled(parts))
    second = assembled(other, before=bytes(first_size), shift=True)[first_size:]
    data = assembled(parts, comment=second)
    directory = directory_of(data, tmp_path)
    noted(directory, NoteKind.ZIP_AMBIGUOUS, "two end records")
    assert list(loaded(data, tmp_path)) == ["z"]
    assert directory.find("data/0").size == 8


def test_end_record_in_the_comment_that_leads_nowhere(tmp_path, parts):
    """A bare end record in the comment, which torch follows to nothing, is an error."""
    fake = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 9, 9, 600, 5, 0)
    with pytest.raises(DamagedError, match="should begin at byte 5"):
        directory_of(assembled(parts, comment=fake), tmp_path)


def test_archives_one_behind_the_other(tmp_path, parts):
    """A run of whole archives, as distributed checkpoints have them, is something else."""
    with pytest.raises(NotACheckpointError, match="several zip archives"):
        directory_of(saved(CONTENTS) + saved([torch.ones(2)]), tmp_path)
    with pytest.raises(NotACheckpointError, match="several zip archives"):
        directory_of(assembled(parts) + assembled(parts), tmp_path)


@pytest.mark.parametrize("archive", [saved(CONTENTS), assembled(parts_of(saved(CONTENTS)))])
def test_bytes_put_before(archive, tmp_path):
    """An archive behind other bytes is still read, and torch is said to refuse it."""
    directory = directory_of(b"#!/bin/sh\n" + archive, tmp_path)
    noted(directory, NoteKind.ZIP_DAMAGED, "10 bytes were put before the archive")
    assert directory.find("data/0").size == 24
    assert not directory.repairable


def test_bytes_put_before_with_offsets_made_to_fit(tmp_path, parts):
    """An archive that starts late and says so is whole."""
    directory = directory_of(assembled(parts, before=b"#!/bin/sh\n", shift=True), tmp_path)
    assert directory.notes == ()
    assert directory.records[0].header_offset == 10


def test_fewer_entries_than_there_are(tmp_path, parts):
    """A directory that goes on after its last counted entry is ambiguous."""
    directory = noticed(assembled(parts, here=7, count=7), tmp_path)
    noted(directory, NoteKind.ZIP_AMBIGUOUS, "continues after its 7 entries")


def test_more_entries_than_there_are(tmp_path, parts):
    """A directory with fewer entries than counted is damaged."""
    with pytest.raises(DamagedError, match="Entry 9 of 12"):
        directory_of(assembled(parts, here=12, count=12), tmp_path)


def test_directory_elsewhere(tmp_path, parts):
    """A directory that is not where the end record's size puts it is ambiguous."""
    data = assembled(parts)
    (size,) = struct.unpack("<I", data[-10:-6])
    (offset,) = struct.unpack("<I", data[-6:-2])
    moved = data[:-22] + b"junk" + data[-22:]
    noted(noticed(moved, tmp_path), NoteKind.ZIP_AMBIGUOUS, f"look for it at byte {offset + 4:,}")
    assert size


def test_wrong_directory_offset(tmp_path, parts):
    """A directory that lies right before its end, but not where that says, is still found; torch refuses it."""
    data = assembled(parts, offset=5)
    directory = directory_of(data, tmp_path)
    noted(directory, NoteKind.ZIP_DAMAGED, "not at 5 as its end record states")
    assert directory.find("data/0").size == 24
    with pytest.raises(RuntimeError):
        loaded(data, tmp_path)


def test_several_disks(tmp_path, parts):
    """An archive over several disks is refused by torch, and said to be."""
    noted(noticed(assembled(parts, here=3), tmp_path), NoteKind.ZIP_UNUSUAL, "several disks")


def test_zip64_record_that_disagrees(tmp_path):
    """Two end records that count differently are ambiguous."""
    data = bytearray(saved(CONTENTS))
    count = struct.unpack_from("<H", data, len(data) - 12)[0]
    struct.pack_into("<HH", data, len(data) - 14, count - 1, count - 1)
    directory = noticed(bytes(data), tmp_path)
    noted(directory, NoteKind.ZIP_AMBIGUOUS, "disagree on the number of records")


def test_zip64_record_that_is_not_there(tmp_path):
    """A locator that leads to no zip64 end record is ambiguous; one that leads out of the file is damage."""
    data = bytearray(saved(CONTENTS))
    struct.pack_into("<Q", data, len(data) - 34, 5)
    noted(directory_of(bytes(data), tmp_path), NoteKind.ZIP_AMBIGUOUS, "no zip64 end record at byte 5")
    struct.pack_into("<Q", data, len(data) - 34, 1 << 60)
    with pytest.raises(DamagedError, match="beyond the end"):
        directory_of(bytes(data), tmp_path)


def test_zip64_record_of_an_odd_length(tmp_path):
    """A zip64 end record whose length torch refuses is pointed out."""
    data = bytearray(saved(CONTENTS))
    struct.pack_into("<Q", data, len(data) - 94, 3)
    noted(noticed(bytes(data), tmp_path), NoteKind.ZIP_UNUSUAL, "gives its own length as 3")


def test_end_record_that_needs_zip64(tmp_path, parts):
    """'All ones' in the end record without a zip64 record is damage."""
    directory = directory_of(assembled(parts, offset=0xFFFFFFFF), tmp_path)
    noted(directory, NoteKind.ZIP_DAMAGED, "points to a missing zip64 end record")
    assert not directory.repairable


def test_directory_too_large(tmp_path, parts):
    """A directory of gigabytes, or of millions of records, is not read."""
    with pytest.raises(HostileError, match="more than any has"):
        directory_of(assembled(parts, size=0x7FFFFFFF), tmp_path)


@pytest.mark.parametrize("data", [b"", b"PK\3\4", b"PK\5\6", bytes(100), b"PK\3\4" + bytes(200_000)])
def test_no_end_record(data, tmp_path):
    """Without an end record the archive is cut off."""
    with pytest.raises(TruncatedError):
        directory_of(data, tmp_path)
