"""Entries of the central directory that torch.save would not write."""

import struct

import pytest
import torch

from ckptdoctor.checkpoint import NoteKind
from tests.formats.torch.zip.forge import (
    CONTENTS,
    assembled,
    directory_of,
    kinds,
    loaded,
    noted,
    noticed,
    part,
    parts_of,
    saved,
)


@pytest.mark.parametrize(
    ("flag", "text"), [(1, "encrypted"), (0x20, "flag 0x20"), (0x40, "flag 0x40"), (0x2000, "masked headers")]
)
def test_flags_that_torch_refuses(flag, text, tmp_path, parts):
    """Flag bits for which torch refuses a record are named."""
    one = part(parts, "data/0")
    one.local = one.central = {"flags": 0x0808 | flag}
    data = assembled(parts)
    noted(noticed(data, tmp_path), NoteKind.ZIP_UNUSUAL, text, "archive/data/0")
    with pytest.raises(RuntimeError, match="unsupported"):
        loaded(data, tmp_path)


def test_version_99(tmp_path, parts):
    """A version that zipfile refuses and torch ignores is named."""
    part(parts, "data/0").central = {"version": 99}
    noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_UNUSUAL, "version 9.9")


def test_deflated(tmp_path, parts):
    """A compressed record is named: torch maps it to garbage."""
    part(parts, "data/0").method = 8
    data = assembled(parts)
    noted(noticed(data, tmp_path), NoteKind.ZIP_UNUSUAL, "compressed", "archive/data/0")
    assert loaded(data, tmp_path)["w"].tolist() == CONTENTS["w"].tolist()
    assert loaded(data, tmp_path, mmap=True)["w"].tolist() != CONTENTS["w"].tolist()


def test_unknown_method(tmp_path, parts):
    """A compression method that torch does not know is named."""
    one = part(parts, "data/0")
    one.local = one.central = {"method": 12}
    noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_UNUSUAL, "method 12")


def test_folder_with_data(tmp_path, parts):
    """A record with data that is marked as a folder is ambiguous: torch leaves the tensor's memory as it was."""
    part(parts, "data/0").central = {"external": 0x10}
    data = assembled(parts)
    noted(noticed(data, tmp_path), NoteKind.ZIP_AMBIGUOUS, "marked as a folder", "archive/data/0")
    assert loaded(data, tmp_path, mmap=True)["w"].tolist() == CONTENTS["w"].tolist()


def test_symbolic_link(tmp_path, parts):
    """A symbolic link is named."""
    part(parts, "data/0").central = {"external": 0o120777 << 16}
    noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_UNUSUAL, "symbolic link", "archive/data/0")


def test_other_disk(tmp_path, parts):
    """A record on another disk is named."""
    part(parts, "data/0").central = {"disk": 2}
    noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_UNUSUAL, "another disk")


def test_stored_with_two_sizes(tmp_path, parts):
    """A stored record with two sizes is damaged."""
    part(parts, "data/0").central = {"compressed": 20}
    noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_DAMAGED, "two different sizes")


@pytest.mark.parametrize("extra", [b"", b"\1\0\4\0abcd", b"\1\0\x18\0abcd", b"\2\0\0\0"])
def test_zip64_field_missing_or_short(extra, tmp_path, parts):
    """A size of 'all ones' without its 64-bit value is damage."""
    part(parts, "data/0").central = {"size": 0xFFFFFFFF, "compressed": 0xFFFFFFFF, "extra": extra}
    directory = directory_of(assembled(parts), tmp_path)
    assert NoteKind.ZIP_DAMAGED in kinds(directory)
    assert not directory.repairable


def test_zip64_sizes_that_lie(tmp_path, parts):
    """A 64-bit size that reaches past the file is damage."""
    lie = struct.pack("<HHQQ", 1, 16, 1 << 62, 1 << 62)
    part(parts, "data/0").central = {"size": 0xFFFFFFFF, "compressed": 0xFFFFFFFF, "extra": lie}
    noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_DAMAGED, "past the end of the file")


def test_one_cause_is_one_note(tmp_path):
    """A cause that many records share is one note that names a few and counts the rest."""
    parts = parts_of(saved([torch.zeros(2) for _ in range(40)]))
    for one in parts:
        one.central = {"version": 99}
    note = noted(noticed(assembled(parts), tmp_path), NoteKind.ZIP_UNUSUAL, "version 9.9")
    assert "and 43 more" in note.message
