"""Reads the central directory: what torch goes by."""

from __future__ import annotations

from typing import NamedTuple

from ckptdoctor.checkpoint import NoteKind, Source
from ckptdoctor.errors import DamagedError
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.end import End
from ckptdoctor.formats.torch.zip.remarks import Remarks
from ckptdoctor.wording import plural

# flag bits for which torch's reader refuses the record, or the whole archive, and why
_REFUSED_FLAGS = (
    (structs.ENCRYPTED, "is marked as encrypted, which torch refuses"),
    (structs.PATCH, "is marked as a patch (flag 0x20), which torch refuses"),
    (structs.STRONG_ENCRYPTION, "is marked as strongly encrypted (flag 0x40), which torch refuses"),
    (structs.MASKED_HEADERS, "is marked as having masked headers, which torch refuses"),
)

# the version that zip64 asks for; readers refuse records that ask for more than they know
_VERSION_ZIP64 = 45

_SYMLINK = 0o120000
_FILE_TYPE = 0o170000
_DOS_DIRECTORY = 0x10


class Entry(NamedTuple):
    """One entry of the central directory, as it stands in the file; ``offset`` is that of its local header."""

    raw: bytes
    name: str
    method: int
    flags: int
    crc: int
    compressed: int
    size: int
    offset: int
    directory: bool


# a named tuple's own constructor takes several times as long
_entry = tuple.__new__


def read_entries(source: Source, end: End, remarks: Remarks) -> list[Entry]:
    """Every entry of the central directory, in one read. Raises DamagedError when it breaks off."""
    data = source.read(end.offset, end.size)
    entries: list[Entry] = []
    at, limit = 0, len(data)
    unpack, fixed = structs.CENTRAL.unpack_from, structs.CENTRAL.size
    for index in range(end.entries):
        if at + fixed > limit:
            raise _broken(index, end, at)
        fields = unpack(data, at)
        (sign, _, version, flags, method, _, _, crc, compressed, size, n, extra, comment, disk, _, external, offset) = (
            fields
        )
        named = at + fixed + n
        raw = data[at + fixed : named]
        if sign != structs.CENTRAL_SIGNATURE or named + extra + comment > limit:
            raise _broken(index, end, at)
        name = raw.decode("utf-8", "surrogateescape")
        if extra and structs.MAX32 in (compressed, size, offset):
            field = data[named : named + extra]
            size, compressed, offset = widened(field, size, compressed, offset, name, remarks)
        directory = bool(external & _DOS_DIRECTORY) or name[-1:] == "/"
        entry = _entry(Entry, (raw, name, method, flags, crc, compressed, size, offset + end.shift, directory))
        if flags & ~0x0808 or method or version > _VERSION_ZIP64 or disk or external or compressed != size or directory:
            _odd(entry, version, disk, external, remarks)
        entries.append(entry)
        at = named + extra + comment
    if data[at : at + 4] == structs.CENTRAL_SIGNATURE:
        message = (
            f"the zip directory goes on after its {plural(end.entries, 'entry', 'entries')}: torch stops there, "
            "zipfile reads on"
        )
        remarks.add(NoteKind.ZIP_AMBIGUOUS, message, offset=end.offset + at)
    return entries


def _broken(index: int, end: End, at: int) -> DamagedError:
    where = end.offset + at
    return DamagedError(
        f"Entry {index:,} of {end.entries:,} of the zip directory is damaged, at byte {where:,}.", offset=where
    )


def widened(extra: bytes, size: int, compressed: int, offset: int, name: str, remarks: Remarks) -> tuple[int, int, int]:
    """Size, compressed size and offset with their 64-bit values from a zip64 extra field, where they are 'all ones'."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = structs.EXTRA.unpack_from(extra, at)
        field = extra[at + 4 : at + 4 + length]
        if kind == structs.ZIP64_FIELD and len(field) == length:
            values = [size, compressed, offset]
            wanted = [index for index, value in enumerate(values) if value == structs.MAX32]
            if length < 8 * len(wanted):
                break
            for place, index in enumerate(wanted):
                values[index] = int.from_bytes(field[8 * place : 8 * place + 8], "little")
            return values[0], values[1], values[2]
        at += 4 + length
    remarks.about(NoteKind.ZIP_DAMAGED, name, "needs a zip64 field that is missing or too short")
    return size, compressed, offset


def _odd(entry: Entry, version: int, disk: int, external: int, remarks: Remarks) -> None:
    """Remarks on an entry that torch.save would not have written."""
    name = entry.name
    for bit, what in _REFUSED_FLAGS:
        if entry.flags & bit:
            remarks.about(NoteKind.ZIP_UNUSUAL, name, what)
    if version > _VERSION_ZIP64:
        remarks.about(
            NoteKind.ZIP_UNUSUAL,
            name,
            f"asks for zip version {version / 10:.1f}: torch ignores that, zipfile refuses it",
        )
    if disk not in (0, 1):
        remarks.about(NoteKind.ZIP_UNUSUAL, name, "is said to lie on another disk, which torch refuses")
    if external >> 16 & _FILE_TYPE == _SYMLINK:
        remarks.about(
            NoteKind.ZIP_UNUSUAL, name, "is marked as a symbolic link: torch reads it as data, unzip makes a link"
        )
    if entry.method == structs.DEFLATED:
        what = "is compressed: torch.load(mmap=True) gives garbage for it without a word"
        remarks.about(NoteKind.ZIP_UNUSUAL, name, what)
    elif entry.method != structs.STORED:
        remarks.about(NoteKind.ZIP_UNUSUAL, name, f"is compressed by method {entry.method}, which torch refuses")
    elif entry.compressed != entry.size:
        what = "is stored, yet has two different sizes in the directory: torch refuses the archive"
        remarks.about(NoteKind.ZIP_DAMAGED, name, what)
    if entry.directory and entry.size:
        remarks.about(
            NoteKind.ZIP_AMBIGUOUS, name, "is marked as a folder but has data: torch leaves its memory uninitialised"
        )
