"""Local headers and descriptors held against the central directory."""

import struct
import zlib

import pytest

from ckptdoctor.checkpoint import NoteKind
from tests.formats.torch.zip.forge import assembled, directory_of, kinds, noted, noticed, part


def test_another_name_in_the_local_header(tmp_path, parts):
    """A record that its own header calls something else is ambiguous."""
    part(parts, "data/0").local = {"name": b"archive/data/9"}
    directory = directory_of(assembled(parts), tmp_path)
    noted(directory, NoteKind.ZIP_AMBIGUOUS, "is called archive/data/9", "archive/data/0")
    assert not directory.repairable


@pytest.mark.parametrize("lie", [{"size": 4, "compressed": 4}, {"crc": 1}, {"flags": 0x0800, "size": 24}])
def test_another_size_or_checksum_in_the_local_header(lie, tmp_path, parts):
    """Sizes and checksums in a local header that contradict the directory are ambiguous."""
    part(parts, "data/0").local = lie
    noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_AMBIGUOUS, "another size or checksum in its own")


def test_local_header_with_the_right_sizes(tmp_path, parts):
    """Writers that put sizes and checksum into the local header, as zipfile does, are fine."""
    for one in parts:
        common = {"crc": zlib.crc32(one.data)}
        one.local = {"flags": 0, "size": len(one.data), "compressed": len(one.data), **common}
        one.central, one.footer = {"flags": 0}, b""
    assert noticed(assembled(parts), tmp_path).notes == ()


def test_another_method_in_the_local_header(tmp_path, parts):
    """A method that differs between header and directory is ambiguous."""
    part(parts, "data/0").local = {"method": 8}
    noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_AMBIGUOUS, "method 0 in the directory and 8")


def test_another_flag_in_the_local_header(tmp_path, parts):
    """A local header that says encrypted, where the directory does not, is ambiguous."""
    part(parts, "data/0").local = {"flags": 0x0809}
    noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_AMBIGUOUS, "other flags")


@pytest.mark.parametrize(
    ("footer", "kind", "text"),
    [
        (struct.pack("<4sIII", b"PK\7\x08", 1, 24, 24), NoteKind.ZIP_AMBIGUOUS, "in the descriptor after it"),
        (b"", NoteKind.ZIP_DAMAGED, "no descriptor"),
        (b"\0" * 16, NoteKind.ZIP_DAMAGED, "no descriptor"),
    ],
)
def test_descriptor(footer, kind, text, tmp_path, parts):
    """A descriptor that contradicts the directory, or is not there, is pointed out."""
    part(parts, "data/0").footer = footer
    noted(noticed(assembled(parts), tmp_path), kind, text, "archive/data/0")


def test_overlapping_records(tmp_path, parts):
    """Two records that share bytes are damage."""
    part(parts, "data/0").central = {"size": 300, "compressed": 300}
    noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_DAMAGED, "overlaps", "archive/data/0")


def test_two_entries_for_one_place(tmp_path, parts):
    """Two entries that lead to the same bytes are damage."""
    part(parts, "data/1").central = {"offset": 0}
    directory = noticed(assembled(parts), tmp_path)
    assert NoteKind.ZIP_DAMAGED in kinds(directory)


@pytest.mark.parametrize("offset", [10**6, 0xFFFFFFFE])
def test_record_outside_the_file(offset, tmp_path, parts):
    """A record whose header would lie beyond the file is damage, and its data is nowhere."""
    part(parts, "data/0").central = {"offset": offset}
    directory = noticed(assembled(parts), tmp_path)
    noted(directory, NoteKind.ZIP_DAMAGED, "is beyond the end of the file", "archive/data/0")


def test_header_where_there_is_none(tmp_path, parts):
    """An entry that leads to bytes which are no local header is damage."""
    part(parts, "data/0").central = {"offset": 7}
    note = noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_DAMAGED, "no local header", "archive/data/0")
    assert "at byte 7 of the file" in note.message
