"""Finds the end of a zip archive and with it the central directory, and reads it, the way torch's reader (miniz) does.

miniz takes the last end record signature in the file, applies a zip64 end record wherever a locator leads to one,
and believes the directory offset as it is; ``zipfile`` and others work it out from where the end record is.
"""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import repeat
from struct import Struct
from typing import NamedTuple

from ckptdoctor.checkpoint import NoteKind, Source
from ckptdoctor.errors import DamagedError, HostileError, NotACheckpointError, TruncatedError
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.records import Remarks
from ckptdoctor.noun import noun
from ckptdoctor.wording import plural

# miniz gives up looking for the end record about this far from the end of the file
_REACH = structs.MAX16 + structs.END.size
_BLOCK = 4096  # bytes that torch reads at once to find it

# a directory of more than this is not read: half a million records of 130 bytes each
MAX_DIRECTORY_BYTES = 64 << 20
MAX_RECORDS = 500_000


@noun
class End:
    """What the end of the archive says: ``entries`` records, in the ``size`` bytes at ``offset`` of the file.

    ``tail`` is where the end records begin, ``stop`` the byte after the last of them and its comment. ``shift`` is
    what must be added to every offset in the archive, because that many bytes were put before it.
    """

    entries: int
    size: int
    offset: int
    tail: int
    stop: int
    shift: int = 0


@noun
class _Claim:
    """The directory's whereabouts in one end record."""

    entries: int
    size: int
    offset: int


def find_end(source: Source, remarks: Remarks) -> End:
    """Return where the central directory is.

    Raises TruncatedError when there is no end record, DamagedError when it leads nowhere, HostileError when the
    directory is too large to be a checkpoint's, and NotACheckpointError when several archives are in one file.
    """
    start = max(0, source.size - _REACH)
    data = source.read(start, source.size - start)
    at = data.rfind(structs.END_SIGNATURE, 0, max(0, len(data) - structs.END.size + 4))
    if at < 0:
        raise TruncatedError("The archive has no end record: the file was cut off.", offset=source.size)
    _, disk, first_disk, here, entries, size, offset, comment = structs.END.unpack_from(data, at)
    claim = _Claim(entries, size, offset)
    met = _is_found_by_torch(start + at, source.size)
    if not met:
        message = f"torch rejects the file: it does not find the end record at byte {start + at:,}"
        remarks.add(NoteKind.ZIP_UNUSUAL, message, offset=start + at)
    after = start + at + structs.END.size
    stop = _comment(source, remarks, data[at + structs.END.size :], comment, after, met)
    _rivals(remarks, data, at, start)
    tail, claim64 = _zip64(source, remarks, start + at, claim)
    if claim64 is None and (here != entries or (disk, first_disk) not in ((0, 0), (1, 1))):
        remarks.add(NoteKind.ZIP_UNUSUAL, "the end record mentions several disks, which torch rejects", offset=tail)
    return _resolve(source, remarks, claim64 or claim, tail, stop)


def _is_found_by_torch(at: int, size: int) -> bool:
    """Return whether torch's search for the end record, which goes backwards in blocks, comes to this byte.

    Where a block would begin before the file, torch 2.13 moves to a negative offset and gives up: seen with ``strace``.
    """
    begin = size - _BLOCK
    while begin > at:
        begin -= _BLOCK - 3  # of the four bytes by which it is known, three may be in the block behind
        if begin < 0:
            return False
    return True


def _comment(source: Source, remarks: Remarks, rest: bytes, comment: int, after: int, met: bool) -> int:
    """Return the byte after the archive's comment, and add notes on a truncated comment and on bytes beyond it.

    ``met``: torch finds this end.
    """
    if comment > len(rest):
        message = (
            f"the end record announces a comment of {plural(comment, 'byte')}, but "
            f"{plural(len(rest), 'follows', 'follow')}"
        )
        remarks.add(NoteKind.ZIP_DAMAGED, message, offset=after)
        return source.size
    stop = after + comment
    if stop < source.size:
        count = source.size - stop
        message = f"{plural(count, 'byte follows', 'bytes follow')} the end of the archive at byte {stop:,}"
        message += f"; torch ignores {'it' if count == 1 else 'them'}" if met else ""
        remarks.add(NoteKind.TRAILING_BYTES, message, offset=stop)
    return stop


def _rivals(remarks: Remarks, data: bytes, chosen: int, start: int) -> None:
    """Remark on an earlier end record whose comment reaches to the chosen one or beyond: two archives in one."""
    at = data.find(structs.END_SIGNATURE)
    while 0 <= at < chosen:
        comment = structs.END.unpack_from(data, at)[-1]
        reach = at + structs.END.size + comment
        if reach == len(data) or chosen < reach <= len(data) or (reach == chosen and comment):
            message = (
                f"the archive has two end records, at bytes {start + at:,} and {start + chosen:,}: "
                "torch reads the last one, other readers may read the first"
            )
            remarks.add(NoteKind.ZIP_AMBIGUOUS, message, offset=start + at)
            return
        at = data.find(structs.END_SIGNATURE, at + 4)


def _zip64(source: Source, remarks: Remarks, end: int, claim: _Claim) -> tuple[int, _Claim | None]:
    """Return where the end records begin, and what the zip64 end record says, if a locator leads to one."""
    locator = end - structs.LOCATOR.size
    if locator < structs.END64.size or source.read(locator, 4) != structs.LOCATOR_SIGNATURE:
        if structs.MAX32 in (claim.size, claim.offset) or claim.entries == structs.MAX16:
            remarks.add(NoteKind.ZIP_DAMAGED, "the end record points to a missing zip64 end record", offset=end)
        return end, None
    _, disk, record, disks = structs.LOCATOR.unpack(source.read(locator, structs.LOCATOR.size))
    if record > source.size - structs.END64.size:
        raise DamagedError(f"The zip64 end record should be at byte {record:,}, beyond the end.", offset=locator)
    beside = locator - structs.END64.size
    if source.read(record, 4) != structs.END64_SIGNATURE:
        message = (
            f"there is no zip64 end record at byte {record:,}, where one is announced: readers disagree on "
            "which record counts"
        )
        remarks.add(NoteKind.ZIP_AMBIGUOUS, message, offset=locator)
        if source.read(beside, 4) != structs.END64_SIGNATURE:
            return locator, None
        record = beside  # what bytes put before the archive do to it
    fields = structs.END64.unpack(source.read(record, structs.END64.size))
    _, rest, _, _, this_disk, first_disk, here, entries, size, offset = fields
    if (disk, disks) != (0, 1) or here != entries or (this_disk, first_disk) not in ((0, 0), (1, 1)):
        remarks.add(NoteKind.ZIP_UNUSUAL, "the end record mentions several disks, which torch rejects", offset=record)
    if rest < structs.END64.size - 12:
        message = f"the zip64 end record gives its own length as {rest}, which torch rejects"
        remarks.add(NoteKind.ZIP_UNUSUAL, message, offset=record)
    if record != beside:
        message = f"the zip64 end record that torch reads (at byte {record:,}) is not where other readers look"
        remarks.add(NoteKind.ZIP_AMBIGUOUS, message, offset=record)
    claim64 = _Claim(entries, size, offset)
    _compare(remarks, claim, claim64, record)
    return record, claim64


def _compare(remarks: Remarks, claim: _Claim, claim64: _Claim, record: int) -> None:
    """Remark on a zip64 end record that contradicts the plain one (which says 'all ones' where it does not fit)."""
    rows = (
        ("number of records", claim.entries, claim64.entries, structs.MAX16),
        ("directory size", claim.size, claim64.size, structs.MAX32),
        ("directory offset", claim.offset, claim64.offset, structs.MAX32),
    )
    for what, plain, wide, full in rows:
        if plain not in (wide, full):
            message = (
                f"the end record and the zip64 end record disagree on the {what} ({plain:,} and {wide:,}): "
                "torch uses the zip64 one, some readers the other"
            )
            remarks.add(NoteKind.ZIP_AMBIGUOUS, message, offset=record)


def _resolve(source: Source, remarks: Remarks, claim: _Claim, tail: int, stop: int) -> End:
    if claim.entries > MAX_RECORDS or claim.size > MAX_DIRECTORY_BYTES:
        raise HostileError(
            f"The zip directory claims {claim.entries:,} records in {claim.size:,} bytes, more than any has.",
            offset=tail,
        )
    beside = tail - claim.size  # where a reader finds the directory that trusts its size rather than its offset
    shift = beside - claim.offset
    if shift > 0 and _follows_an_archive(source, shift):
        raise NotACheckpointError(f"{source.path} is several zip archives, one after the other.")
    if claim.offset + claim.size <= source.size and _is_directory(source, claim.offset, claim.entries):
        if claim.offset != beside:
            message = (
                f"the directory that torch reads is at byte {claim.offset:,}, but readers that use the end "
                f"record look for it at byte {beside:,}"
            )
            remarks.add(NoteKind.ZIP_AMBIGUOUS, message, offset=claim.offset)
        return End(claim.entries, claim.size, claim.offset, tail, stop)
    if claim.entries and beside >= 0 and _is_directory(source, beside, claim.entries):
        shift = shift if _first_record_at(source, beside, shift) else 0
        message = (
            f"{plural(shift, 'byte was', 'bytes were')} put before the archive, so its offsets are wrong: "
            "torch rejects it"
        )
        if not shift:
            message = (
                f"the directory is at byte {beside:,}, not at {claim.offset:,} as its end record states: torch "
                "rejects it"
            )
        remarks.add(NoteKind.ZIP_DAMAGED, message, offset=0 if shift else beside)
        return End(claim.entries, claim.size, beside, tail, stop, shift)
    raise DamagedError(
        f"The zip directory should begin at byte {claim.offset:,}, but there is none: the file is damaged.",
        offset=claim.offset,
    )


def _follows_an_archive(source: Source, start: int) -> bool:
    """Return whether another archive ends at ``start``, as in the ``.distcp`` files of a distributed checkpoint."""
    before = start - structs.END.size
    return before >= 0 and source.read(before, 4) == structs.END_SIGNATURE


def _first_record_at(source: Source, directory: int, shift: int) -> bool:
    """Return whether the directory's first entry leads to a local header once its offset is shifted."""
    if shift <= 0 or directory + structs.CENTRAL.size > source.size:
        return False
    offset = structs.CENTRAL.unpack(source.read(directory, structs.CENTRAL.size))[-1] + shift
    return offset + 4 <= source.size and source.read(offset, 4) == structs.LOCAL_SIGNATURE


def _is_directory(source: Source, offset: int, entries: int) -> bool:
    if not entries:
        return True
    return offset + 4 <= source.size and source.read(offset, 4) == structs.CENTRAL_SIGNATURE


# ---- the entries of the directory


# flag bits for which torch's reader refuses the record, or the whole archive, and why
_REFUSED_FLAGS = (
    (structs.ENCRYPTED, "is marked as encrypted, which torch rejects"),
    (structs.PATCH, "is marked as a patch (flag 0x20), which torch rejects"),
    (structs.STRONG_ENCRYPTION, "is marked as strongly encrypted (flag 0x40), which torch rejects"),
    (structs.MASKED_HEADERS, "is marked as having masked headers, which torch rejects"),
)

# the version that zip64 asks for; readers refuse records that ask for more than they know
_VERSION_ZIP64 = 45

_USUAL_FLAGS = structs.HAS_DESCRIPTOR | structs.UTF8

_SYMLINK = 0o120000
_FILE_TYPE = 0o170000
_DOS_DIRECTORY = 0x10


class Entry(NamedTuple):
    """One entry of the central directory, as it is in the file; ``offset`` is that of its local header."""

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
_entry = partial(tuple.__new__, Entry)

# entries whose names are of one length, as are nearly all of torch.save, are read so many at once
_AT_ONCE = 256


def read_entries(source: Source, end: End, remarks: Remarks) -> list[Entry]:
    """Return every entry of the central directory, in one read. Raises DamagedError when it breaks off."""
    data = source.read(end.offset, end.size)
    entries: list[Entry] = []
    at, limit = 0, len(data)
    unpack, fixed = structs.CENTRAL.unpack_from, structs.CENTRAL.size
    one_by_one = 0  # entries up to this one, of which some are not as torch.save writes them
    while len(entries) < end.entries:
        index = len(entries)
        if index >= one_by_one:
            usual, behind = _usual_entries(data, at, min(_AT_ONCE, end.entries - index), end.shift)
            if usual:
                entries += usual
                at = behind
                continue
            one_by_one = index + _AT_ONCE
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
        entry: Entry = _entry((raw, name, method, flags, crc, compressed, size, offset + end.shift, directory))
        if (
            flags & ~_USUAL_FLAGS
            or method
            or version > _VERSION_ZIP64
            or disk
            or external
            or compressed != size
            or directory
        ):
            _odd(entry, version, disk, external, remarks)
        entries.append(entry)
        at = named + extra + comment
    if data[at : at + 4] == structs.CENTRAL_SIGNATURE:
        message = (
            f"the zip directory continues after its {plural(end.entries, 'entry', 'entries')}: torch stops "
            "there, zipfile reads on"
        )
        remarks.add(NoteKind.ZIP_AMBIGUOUS, message, offset=end.offset + at)
    return entries


def _usual_entries(data: bytes, at: int, count: int, shift: int) -> tuple[list[Entry], int]:
    """Return the next entries, if so many have names of one length and nothing odd, and where they end; else none.

    They are compared column by column, which takes a third of the time of one by one.
    """
    if at + structs.CENTRAL.size > len(data):
        return [], at
    length = structs.CENTRAL.unpack_from(data, at)[10]
    rows = _entries_of(length)
    stop = at + count * rows.size
    last = stop - rows.size
    if not length or stop > len(data) or not data.startswith(structs.CENTRAL_SIGNATURE, last):
        return [], at
    (signs, _, versions, flags, methods, _, _, crcs, packed, sizes, lengths, extras, comments, disks, _, external,
     offsets, raws) = zip(*rows.iter_unpack(data[at:stop]), strict=True)  # fmt: skip
    text = b"".join(raws)
    if not (
        signs.count(structs.CENTRAL_SIGNATURE) == lengths.count(length) == count
        and packed == sizes
        and max(versions) <= _VERSION_ZIP64
        and not any(flag & ~_USUAL_FLAGS for flag in set(flags))
        and not any(map(any, (methods, extras, comments, disks, external)))
        and text.isascii()
        and b"/" not in text[length - 1 :: length]
    ):
        return [], at
    shifted = [offset + shift for offset in offsets] if shift else offsets
    columns = raws, map(bytes.decode, raws), methods, flags, crcs, packed, sizes, shifted, repeat(False)
    return list(map(_entry, zip(*columns))), stop  # noqa: B905  the last column has no end


@lru_cache(maxsize=64)
def _entries_of(length: int) -> Struct:
    """Return an entry with a name of so many bytes, and no more."""
    return Struct(f"{structs.CENTRAL.format}{length}s")


def _broken(index: int, end: End, at: int) -> DamagedError:
    where = end.offset + at
    return DamagedError(
        f"Entry {index:,} of {end.entries:,} of the zip directory is damaged, at byte {where:,}.", offset=where
    )


def widened(extra: bytes, size: int, compressed: int, offset: int, name: str, remarks: Remarks) -> tuple[int, int, int]:
    """Return size, compressed size and offset with their 64-bit values, where they are 'all ones'."""
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
    """Remark on an entry that torch.save would not have written."""
    name = entry.name
    for bit, what in _REFUSED_FLAGS:
        if entry.flags & bit:
            remarks.about(NoteKind.ZIP_UNUSUAL, name, what)
    if version > _VERSION_ZIP64:
        remarks.about(
            NoteKind.ZIP_UNUSUAL,
            name,
            f"asks for zip version {version / 10:.1f}: torch ignores that, zipfile rejects it",
        )
    if disk not in (0, 1):
        remarks.about(NoteKind.ZIP_UNUSUAL, name, "is marked as being on another disk, which torch rejects")
    if external >> 16 & _FILE_TYPE == _SYMLINK:
        remarks.about(
            NoteKind.ZIP_UNUSUAL, name, "is marked as a symbolic link: torch reads it as data, unzip makes a link"
        )
    if entry.method == structs.DEFLATED:
        what = "is compressed: torch.load(mmap=True) silently returns garbage for it"
        remarks.about(NoteKind.ZIP_UNUSUAL, name, what)
    elif entry.method != structs.STORED:
        remarks.about(NoteKind.ZIP_UNUSUAL, name, f"is compressed by method {entry.method}, which torch rejects")
    elif entry.compressed != entry.size:
        what = "is stored, yet has two different sizes in the directory: torch rejects the archive"
        remarks.about(NoteKind.ZIP_DAMAGED, name, what)
    if entry.directory and entry.size:
        remarks.about(
            NoteKind.ZIP_AMBIGUOUS, name, "is marked as a folder but has data: torch leaves its memory uninitialised"
        )
