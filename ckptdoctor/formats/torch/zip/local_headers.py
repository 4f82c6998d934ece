"""Checks the local header and data descriptor of each record against the directory, and reads the record's data.

torch takes from a local header only its length, to find where the data begins; readers that go through a file from
its start, and ``zipfile``, go by its name and sizes too.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from operator import add, sub
from struct import Struct

from ckptdoctor.checkpoint import NoteKind, Source
from ckptdoctor.errors import DamagedError, HostileError
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.central_directory import Entry, widened
from ckptdoctor.formats.torch.zip.records import Record, Remarks, record_of, shown
from ckptdoctor.wording import plural

# headers less than this apart are fetched by one read, because copying the bytes costs less than a system call
_NEAR = 8 << 10
_WINDOW = 1 << 20

# what is read beyond a header's fixed part and name: a zip64 field (4 + 24 bytes), the longest that is looked at
_EXTRA = 28

# a local header as torch.save writes it, up to the two lengths: all sizes and the CRC are 0, a descriptor follows
_TORCH_FLAGS = structs.UTF8 | structs.HAS_DESCRIPTOR
_TORCH = structs.LOCAL.pack(structs.LOCAL_SIGNATURE, 0, _TORCH_FLAGS, *[0] * 8)[:26]
_SIGNED = structs.DESCRIPTOR_SIGNATURE

# headers that lie as near to each other as those of small tensors are compared so many at once
_AT_ONCE = 256
_FEW = 8


def first_name(source: Source) -> str | None:
    """Return the name in the local header at the start of the file, or None where there is no whole header."""
    if source.size < structs.LOCAL.size:
        return None
    fields = structs.LOCAL.unpack(source.read(0, structs.LOCAL.size))
    length = fields[-2]
    if fields[0] != structs.LOCAL_SIGNATURE or structs.LOCAL.size + length > source.size:
        return None
    return source.read(structs.LOCAL.size, length).decode("utf-8", "surrogateescape")


class _Window:
    """A stretch of the file held in memory, moved forward over the headers with as few reads as is sensible."""

    def __init__(self, source: Source, entries: Sequence[Entry], limit: int) -> None:
        self._source = source
        self._entries = entries  # in the order in which they lie in the file
        self._offsets = [entry.offset for entry in entries]
        self.limit = limit
        self.start = 0
        self.data = b""
        self.until = 0  # the first entry whose header it does not hold

    def seek(self, index: int) -> None:
        """Hold the header of ``entries[index]``, the descriptor before it, and the bytes soon after it."""
        start = max(0, self._offsets[index] - structs.DESCRIPTOR64.size)
        offsets = self._offsets[index : bisect_right(self._offsets, start + _WINDOW, index + 1)]
        apart = enumerate(map(sub, offsets[1:], offsets), index + 1)
        self.until = next((place for place, distance in apart if distance > _NEAR), index + len(offsets))
        ends = [
            each.offset + structs.LOCAL.size + len(each.raw) + _EXTRA
            for each in (self._entries[index], self._entries[self.until - 1])
        ]
        stop = min(max(ends), self._source.size)
        self.start, self.data = start, self._source.read(start, stop - start)

    def at(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset`` of the file, fewer at its end.

        They are read apart where the window lacks them.
        """
        begin = offset - self.start
        if begin >= 0 and begin + length <= len(self.data):
            return self.data[begin : begin + length]
        length = min(length, self.limit - offset)
        return self._source.read(offset, length) if length > 0 and offset >= 0 else b""


def check_records(source: Source, entries: list[Entry], directory_offset: int, remarks: Remarks) -> list[Record]:
    """Return the records of the archive, with where their data begins, in directory order.

    Remarks on every record whose header or descriptor contradicts the directory, that is (partly) outside the
    file, or that overlaps the next one or the directory. Over a network, what torch.save laid out is not visited.
    """
    if source.distant:
        from ckptdoctor.formats.torch.zip.layout import predicted_records

        unseen = predicted_records(entries, directory_offset, remarks)
        if unseen is not None:
            return unseen
    order: Sequence[int] = range(len(entries))
    inside: Sequence[Entry] = entries
    offsets = [entry.offset for entry in entries]
    if offsets != sorted(offsets):
        order = sorted(order, key=lambda index: offsets[index])
        inside = [entries[index] for index in order]
    if max(offsets, default=0) + structs.LOCAL.size > source.size:
        inside = [entry for entry in inside if entry.offset + structs.LOCAL.size <= source.size]
    laid_out = _visit_all(_Window(source, inside, source.size), inside, directory_offset, remarks)
    if len(laid_out) < len(entries):
        laid_out += [_outside(entries[index], source.size, remarks) for index in order[len(laid_out) :]]
    if isinstance(order, range):
        return laid_out
    return [record for _, record in sorted(zip(order, laid_out, strict=True), key=lambda pair: pair[0])]


def _visit_all(window: _Window, entries: Sequence[Entry], directory_offset: int, remarks: Remarks) -> list[Record]:
    """Return the record behind each entry, in file order.

    What torch.save wrote is recognised by comparing whole headers.
    """
    records: list[Record] = []
    last: Record | None = None
    lengths, fixed = structs.EXTRA.unpack_from, structs.LOCAL.size
    one_by_one = 0  # entries up to this one, of which some are not as usual
    while len(records) < len(entries):
        place = len(records)
        raw, name, method, flags, crc, compressed, size, offset, directory = entries[place]
        at = offset - window.start
        if at < 0 or at + fixed + len(raw) + _EXTRA > len(window.data) < window.limit - window.start:
            window.seek(place)
            at = offset - window.start
        if place >= max(1, one_by_one) and window.until >= place + _FEW:
            usual = _usual_records(window, entries[place : min(window.until, place + _AT_ONCE)])
            if usual:
                if last is not None:
                    _leave(window, last, offset, remarks)
                records += usual
                last = usual[-1]
                continue
            one_by_one = place + _AT_ONCE
        data = window.data
        name_length, extra_length = lengths(data, at + 26)
        data_offset = offset + fixed + name_length + extra_length
        usual_header = flags == _TORCH_FLAGS and name_length == len(raw)
        if not (usual_header and data.startswith(_TORCH, at) and data.startswith(raw, at + fixed)):
            _compare(window, entries[place], name_length, extra_length, remarks)
        if last is not None:
            _leave(window, last, offset, remarks)
        if data_offset + compressed > window.limit:
            remarks.about(NoteKind.ZIP_DAMAGED, name, "reaches past the end of the file", data_offset)
        last = record_of((name, method, flags, crc, size, compressed, offset, data_offset, directory))
        records.append(last)
    if last is not None:
        _leave(window, last, directory_offset, remarks)
    return records


def _usual_records(window: _Window, entries: Sequence[Entry]) -> list[Record]:
    """Return the records behind entries whose headers the window holds, if nothing about any of them is odd; else none.

    They are compared column by column, which takes a third of the time of one by one. What comes before the first and
    after the last of them is not looked at.
    """
    raws, names, methods, flags, crcs, packed, sizes, offsets, directories = zip(*entries, strict=True)
    row = _header_of(len(raws[0]))
    places = [offset - window.start - structs.DESCRIPTOR.size for offset in offsets]
    if places[0] < 0 or places[-1] + row.size > len(window.data):
        return []
    rows = map(row.unpack_from, repeat(window.data), places)
    (signs, crcs_behind, packed_behind, sizes_behind, headers, name_lengths, extra_lengths,
     names_there) = zip(*rows, strict=True)  # fmt: skip
    before_extra = structs.LOCAL.size + len(raws[0])
    begins = [offset + before_extra + extra for offset, extra in zip(offsets, extra_lengths, strict=True)]
    ends = list(map(add, begins, packed))
    if not (
        flags.count(_TORCH_FLAGS) == headers.count(_TORCH) == name_lengths.count(len(raws[0])) == len(entries)
        and names_there == raws
        and ends[:-1] == [offset - structs.DESCRIPTOR.size for offset in offsets[1:]]
        and signs[1:].count(_SIGNED) == len(entries) - 1
        and (crcs_behind[1:], packed_behind[1:], sizes_behind[1:]) == (crcs[:-1], packed[:-1], sizes[:-1])
        and ends[-1] <= window.limit
    ):
        return []
    columns = names, methods, flags, crcs, sizes, packed, offsets, begins, directories
    return list(map(record_of, zip(*columns, strict=True)))


@lru_cache(maxsize=64)
def _header_of(length: int) -> Struct:
    """Return a descriptor, and the header behind it of a record with a name of so many bytes."""
    return Struct(f"{structs.DESCRIPTOR.format}26sHH{length}s")


def _outside(entry: Entry, size: int, remarks: Remarks) -> Record:
    """Return a record whose header is not in the file; its data is nowhere."""
    remarks.about(NoteKind.ZIP_DAMAGED, entry.name, "is beyond the end of the file", entry.offset)
    _, name, method, flags, crc, compressed, length, offset, directory = entry
    return Record(name, method, flags, crc, length, compressed, offset, size, directory)


def _compare(window: _Window, entry: Entry, name_length: int, extra_length: int, remarks: Remarks) -> None:
    """Remark on every field of a local header that differs from the directory."""
    header = window.at(entry.offset, structs.LOCAL.size)
    signature, _, flags, method, _, _, crc, compressed, size, _, _ = structs.LOCAL.unpack(header)
    if signature != structs.LOCAL_SIGNATURE:
        what = "has no local header where the directory points: torch rejects it, but maps garbage with mmap=True"
        remarks.about(NoteKind.ZIP_DAMAGED, entry.name, what, entry.offset)
        return
    raw = window.at(entry.offset + structs.LOCAL.size, name_length)
    if raw != entry.raw:
        other = shown(raw.decode("utf-8", "surrogateescape"))
        what = f"is called {other} in its own header: torch uses the directory, zipfile rejects it"
        remarks.about(NoteKind.ZIP_AMBIGUOUS, entry.name, what, entry.offset)
    if method != entry.method:
        what = f"has method {entry.method} in the directory and {method} in its own header: torch uses the directory"
        remarks.about(NoteKind.ZIP_AMBIGUOUS, entry.name, what, entry.offset)
    if (flags ^ entry.flags) & ~(structs.HAS_DESCRIPTOR | structs.UTF8):
        what = "has other flags in its own header than in the directory: torch uses the directory"
        remarks.about(NoteKind.ZIP_AMBIGUOUS, entry.name, what, entry.offset)
    if structs.MAX32 in (compressed, size):
        extra = window.at(entry.offset + structs.LOCAL.size + name_length, extra_length)
        size, compressed, _ = widened(extra, size, compressed, 0, entry.name, remarks)
    deferred = flags & structs.HAS_DESCRIPTOR and not (crc or compressed or size)
    if not deferred and (crc, compressed, size) != (entry.crc, entry.compressed, entry.size):
        what = "has another size or checksum in its own header than in the directory: torch uses the directory"
        remarks.about(NoteKind.ZIP_AMBIGUOUS, entry.name, what, entry.offset)


def _descriptor(record: Record) -> bytes:
    """Return what torch.save writes behind the data of a record of less than 4 GiB."""
    return structs.DESCRIPTOR.pack(_SIGNED, record.crc, record.size, record.size)


def _leave(window: _Window, record: Record, following: int, remarks: Remarks) -> None:
    """Add a note on what is between the data of ``record`` and the next header or the directory, at ``following``."""
    end = record.end
    usual = record.flags == _TORCH_FLAGS and window.start <= end <= following and record.size < structs.MAX32
    if usual and window.data.startswith(_descriptor(record), end - window.start):
        return
    if end > following:
        what = "overlaps the bytes after it: two records, or a record and the directory, share bytes"
        remarks.about(NoteKind.ZIP_DAMAGED, record.name, what, record.data_offset)
        return
    if not record.flags & structs.HAS_DESCRIPTOR or not record.size:
        return
    found = window.at(end, structs.DESCRIPTOR.size)
    wanted = (structs.DESCRIPTOR_SIGNATURE, record.crc, record.compressed, record.size)
    if len(found) == structs.DESCRIPTOR.size and structs.DESCRIPTOR.unpack(found) == wanted:
        return
    found = window.at(end, structs.DESCRIPTOR64.size)
    if len(found) == structs.DESCRIPTOR64.size and structs.DESCRIPTOR64.unpack(found) == wanted:
        return
    if found[:4] == structs.DESCRIPTOR_SIGNATURE:
        what = "has another size or checksum in the descriptor after it than in the directory: torch reads neither"
        remarks.about(NoteKind.ZIP_AMBIGUOUS, record.name, what, end)
    elif int.from_bytes(found[:4], "little") != record.crc:  # the signature is optional
        remarks.about(NoteKind.ZIP_DAMAGED, record.name, "has no descriptor after it, although one is announced", end)


# ---- the data of single records, stored or deflated, within bounds


# the longest pickle that is decoded; a checkpoint of 50,000 tensors has one of 7 MB
MAX_PICKLE_BYTES = 1 << 30

# a deflated pickle is not inflated beyond this, and no deflated record beyond 1032 times its size (deflate's limit)
MAX_INFLATED_PICKLE_BYTES = 128 << 20
_DEFLATE_LIMIT = 1032

# of values whose order the byteorder record says
BIG_ENDIAN = "the values were written in big-endian byte order; torch swaps them when it loads them"

# records such as byteorder and version hold a word; more than this of them is not read
MAX_WORD_BYTES = 4096

CHUNK = 1 << 20


def read_record(source: Source, record: Record, limit: int) -> bytes:
    """Return the data of a record, inflated where it is deflated.

    Raises HostileError when it is longer than ``limit`` bytes, DamagedError when it is encrypted, compressed by an
    unknown method, does not inflate to the size that the directory states, or is outside the file.
    """
    check_readable(record)
    if record.size > limit:
        message = f"{shown(record.name)} is {record.size:,} bytes long; at most {limit:,} are read."
        raise HostileError(message, member=shown(record.name))
    if record.method == structs.STORED:
        return source.read(record.data_offset, record.size)
    return b"".join(chunks(source, record))


def check_readable(record: Record) -> None:
    """Raise DamagedError when nobody can read the data of this record: encrypted, or by an unknown method."""
    if record.flags & structs.UNREADABLE or record.method not in structs.METHODS:
        raise DamagedError(f"{unreadable(record)}.", member=shown(record.name))


def unreadable(record: Record) -> str:
    """Return why nobody can read the data of this record."""
    if record.flags & structs.UNREADABLE:
        return f"{shown(record.name)} is marked as encrypted or as a patch"
    return f"{shown(record.name)} is compressed by method {record.method}, which torch cannot read"


def chunks(source: Source, record: Record) -> Iterator[bytes]:
    """Yield the data of a readable record, piece by piece, in bounded memory.

    Raises DamagedError as read_record does.
    """
    if record.method == structs.DEFLATED:
        yield from _inflated(source, record)
        return
    stop = record.data_offset + record.size
    for at in range(record.data_offset, stop, CHUNK):
        yield source.read(at, min(CHUNK, stop - at))


def _inflated(source: Source, record: Record) -> Iterator[bytes]:
    name = shown(record.name)
    if record.size > record.compressed * _DEFLATE_LIMIT:
        message = (
            f"{name} claims to inflate from {record.compressed:,} to {plural(record.size, 'byte')}, which is "
            "impossible."
        )
        raise HostileError(message, member=name)
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    done, at, rest = 0, record.data_offset, b""
    try:
        while done < record.size:
            if not rest:
                rest = source.read(at, min(CHUNK, record.end - at))
                at += len(rest)
            # one byte more than is due would show a record that is longer than it says
            piece = inflater.decompress(rest, min(CHUNK, record.size - done + 1))
            done += len(piece)
            rest = inflater.unconsumed_tail
            if done > record.size or (not piece and not rest and (inflater.eof or at >= record.end)):
                break
            yield piece
    except zlib.error as error:
        message = f"{name} cannot be inflated near byte {at:,} of the file: {error}."
        raise DamagedError(message, member=name) from error
    if done != record.size:
        message = f"{name} does not inflate to the {plural(record.size, 'byte')} that the directory states."
        raise DamagedError(message, member=name)
