"""Lays out an archive byte for byte as ``torch.save`` writes it, and predicts where it laid out what.

The rules are those of ``caffe2/serialize/inline_container.cc`` (alignment by an ``FB`` extra field of ``Z``) and of the
miniz it is built on (headers, descriptors, zip64); ``torch.load`` relies on them when it computes where storages are
(``getRecordOffsetNoRead``).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from struct import Struct

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.central_directory import Entry
from ckptdoctor.formats.torch.zip.records import Record, Remarks, raw_name, record_of
from ckptdoctor.noun import noun
from ckptdoctor.wording import plural
from ckptdoctor.writing.checksums import Bytes
from ckptdoctor.writing.recipe import Copy, Generated, Literal, Segment

# where torch aligns data unless torch.utils.serialization.config.save.storage_alignment says otherwise
DEFAULT_ALIGNMENT = 64

# the padding must fit the 16-bit length of an extra field, with the zip64 field before it
MAX_ALIGNMENT = 1 << 15

# "made by" and "version needed" of the zip64 end record, as miniz writes them
_MADE_BY = 0x031E
_VERSION_ZIP64 = 45


@noun
class Item:
    """One record to write: its full name, its length in bytes, the CRC to state, and the segments that hold it.

    ``summed`` gives the CRC when the archive is written, where the bytes are new: a plan reads none of them.
    """

    name: str
    size: int
    crc: int
    data: tuple[Segment, ...]
    summed: Callable[[], int] | None = None

    def checksum(self) -> int:
        """Return the CRC; reads the bytes where they are new."""
        return self.crc if self.summed is None else self.summed()


def new_item(name: str, size: int, data: tuple[Segment, ...], file: str, stated: bool = True) -> Item:
    """Return the record of new bytes, which are read for their checksum, if one is stated, only once it is written.

    Ranges that name no file are of ``file``.
    """

    if not stated:
        return Item(name, size, 0, data)
    if len(data) == 1 and isinstance(data[0], Generated):
        made = _Summed(data[0])
        return Item(name, size, 0, (Generated(size, made.chunks),), made.checksum)

    @cache
    def summed() -> int:
        with Bytes(file) as files:
            return files.checksum(data)

    waits = any(not isinstance(each, Literal) for each in data)
    return Item(name, size, 0, data, summed) if waits else Item(name, size, summed(), data)


class _Summed:
    """Bytes that are made, and their CRC, for which they are not made once more where they have been written."""

    def __init__(self, made: Generated) -> None:
        self._made = made
        self._crc: int | None = None

    def chunks(self) -> Iterator[bytes]:
        """Yield them; the first time, their CRC is known at the end. What is made later is compared with these."""
        if self._crc is not None:
            yield from self._made.chunks()
            return
        crc = 0
        for chunk in self._made.chunks():
            crc = zlib.crc32(chunk, crc)
            yield chunk
        self._crc = crc

    def checksum(self) -> int:
        """Return the CRC."""
        if self._crc is None:
            for _ in self.chunks():
                pass
        assert self._crc is not None
        return self._crc


def word(folder: str, name: str, data: bytes) -> Item:
    """Return a record in the folder of the archive that is small, and at hand."""
    return Item(f"{folder}/{name}", len(data), zlib.crc32(data), (Literal(data),))


def archive(folder: str, head: bytes, storages: Sequence[Item]) -> tuple[Segment, ...]:
    """Return a whole new archive as ``torch.save`` writes it: the pickle ``head``, and the records of its storages."""
    items = [word(folder, "data.pkl", head), word(folder, ".format_version", b"1")]
    items += [word(folder, ".storage_alignment", str(DEFAULT_ALIGNMENT).encode()), word(folder, "byteorder", b"little")]
    items += storages
    return lay_out([*items, word(folder, "version", b"3\n"), _identity(folder, head, items)])


def _identity(folder: str, head: bytes, items: Sequence[Item]) -> Item:
    """Return forty digits that stand for the contents; torch only logs them."""
    from hashlib import blake2b  # only archives that are new need it

    @cache
    def digits(*checksums: int) -> bytes:
        digest = blake2b(head + b"".join([each.to_bytes(4, "little") for each in checksums]), digest_size=16)
        return str(int(digest.hexdigest(), 16)).zfill(40).encode()

    data = _stating(items, digits)
    name = f"{folder}/.data/serialization_id"
    if isinstance(data, Literal):
        return Item(name, data.length, zlib.crc32(data.data), (data,))
    return Item(name, data.length, 0, (data,), lambda: zlib.crc32(digits(*[each.checksum() for each in items])))


def lay_out(items: Sequence[Item], alignment: int = DEFAULT_ALIGNMENT) -> tuple[Segment, ...]:
    """Return the whole archive, records in the order of ``items``, their data aligned to ``alignment`` bytes."""
    at = 0
    placed: list[tuple[Item, int]] = []
    made = _Joined()
    for item in items:
        placed.append((item, at))
        header = local_header(item.name, item.size, at, alignment)
        made.add(header)
        for segment in item.data:
            made.put(segment)
        footer = descriptor(item.size, at, item.crc)
        if item.summed is None:
            made.add(footer)
        else:
            made.put(_stating([item], partial(descriptor, item.size, at)))
        at += len(header) + item.size + len(footer)
    made.put(_stating(items, partial(_directory, placed, at)))
    return tuple(made.segments())


def lay_out_moved(
    head: tuple[str, bytes, int], rest: Sequence[Record], alignment: int, read: Callable[[int, int], bytes]
) -> tuple[Segment, ...] | None:
    """Return the archive in which only the first record is different: everything after it moves unchanged.

    ``head`` is the name, the data and the CRC of that record, ``rest`` are the others in the order of the original, and
    ``read`` gives bytes of it. The data of every record is aligned, so after the first header that has to be rewritten
    everything moves by a multiple of the alignment. None where something between the records is not what ``lay_out``
    would write there: each header is compared, but no items and segments are made of each.
    """
    name, data, crc = head
    first, last = rest[0], rest[-1]
    before, behind = local_header(name, len(data), 0, alignment), descriptor(len(data), 0, crc)
    place = len(before) + len(data) + len(behind)
    opening = b"".join([before, data, behind, local_header(first.name, first.size, place, alignment)])
    shift = len(opening) - first.data_offset
    if shift % alignment or not (first.size and last.size) or last.end + max(shift, 0) >= structs.MAX32:
        return None
    entries = [central_header(raw_name(name), len(data), 0, crc)]
    entries.append(central_header(raw_name(first.name), first.size, place, first.crc))
    end, footer = first.data_offset, b""
    for record in rest:
        name, method, flags, crc, size, compressed, at, begin, _ = record
        if method != structs.STORED or flags not in _FLAGS or size != compressed or begin + size > last.end:
            return None
        if record is not first:
            raw = raw_name(name)
            between = footer + _near_header(raw, size, at + shift, alignment)
            if (at - end, begin - end) != (len(footer), len(between)) or read(end, len(between)) != between:
                return None
            entries.append(_near_entry(raw, size, at + shift, crc))
        end, footer = begin + size, descriptor(size, at, crc)
    size = sum(map(len, entries))
    closing = b"".join([footer, *entries, end_of(len(entries), size, end + shift + len(footer))])
    return Literal(opening), Copy(first.data_offset, end - first.data_offset), Literal(closing)


def _stating(items: Sequence[Item], say: Callable[..., bytes]) -> Segment:
    """Return what ``say`` makes of the checksums of records.

    It waits for those that are only known while others are made.
    """
    if all(item.summed is None for item in items):
        return Literal(say(*[item.crc for item in items]))

    def said() -> Iterator[bytes]:
        yield say(*[item.checksum() for item in items])

    return Generated(len(say(*[0 for _ in items])), said)


def _directory(placed: Sequence[tuple[Item, int]], at: int, *checksums: int) -> bytes:
    """Return the directory of records at these offsets, and the end of the archive behind it.

    It begins at byte ``at``.
    """
    pairs = zip(placed, checksums, strict=True)
    data = b"".join([central_header(raw_name(item.name), item.size, offset, crc) for (item, offset), crc in pairs])
    return data + end_of(len(placed), len(data), at)


def local_header(name: str, size: int, at: int, alignment: int) -> bytes:
    """Return the local header, beginning at byte ``at``, of a record of ``size`` bytes, padded to the alignment."""
    raw = raw_name(name)
    if size < structs.MAX32 and at < structs.MAX32:
        return _near_header(raw, size, at, alignment)
    wide = b""
    if size >= structs.MAX32:
        wide += size.to_bytes(8, "little") + bytes(8)  # miniz leaves the compressed size to the descriptor
    if at >= structs.MAX32:
        wide += at.to_bytes(8, "little")
    field = structs.EXTRA.pack(structs.ZIP64_FIELD, len(wide)) + wide if wide else b""
    start = at + structs.LOCAL.size + len(raw) + len(field) + structs.EXTRA.size
    extra = field + _padding(-start % alignment)
    return _fixed(_flags(size), len(raw), len(extra)) + raw + extra


_BEFORE_PADDING = structs.LOCAL.size + structs.EXTRA.size


def _near_header(raw: bytes, size: int, at: int, alignment: int) -> bytes:
    """Return the same for a record of less than 4 GiB that begins within the first 4 GiB."""
    head, tail = _around_name(bool(size), len(raw), -(at + _BEFORE_PADDING + len(raw)) % alignment)
    return head + raw + tail


@lru_cache(maxsize=1024)
def _around_name(filled: bool, length: int, padding: int) -> tuple[bytes, bytes]:
    """Return the header bytes before and after a name of ``length`` bytes."""
    extra = _padding(padding)
    return _fixed(_flags(filled), length, len(extra)), extra


def _fixed(flags: int, name: int, extra: int) -> bytes:
    return structs.LOCAL.pack(structs.LOCAL_SIGNATURE, 0, flags, 0, 0, 0, 0, 0, 0, name, extra)


def _padding(count: int) -> bytes:
    return b"FB" + count.to_bytes(2, "little") + b"Z" * count


def _flags(size: int) -> int:
    return structs.UTF8 | structs.HAS_DESCRIPTOR if size else structs.UTF8


def descriptor(size: int, at: int, crc: int) -> bytes:
    """Return what follows the ``size`` bytes of a record whose header begins at byte ``at``."""
    if not size:
        return b""
    form = structs.DESCRIPTOR64 if size >= structs.MAX32 or at >= structs.MAX32 else structs.DESCRIPTOR
    return form.pack(structs.DESCRIPTOR_SIGNATURE, crc, size, size)


def central_header(raw: bytes, size: int, at: int, crc: int) -> bytes:
    """Return the entry in the directory of a record of this name, whose header begins at byte ``at``."""
    if size < structs.MAX32 and at < structs.MAX32:
        return _near_entry(raw, size, at, crc)
    wide = size.to_bytes(8, "little") * 2 if size >= structs.MAX32 else b""
    if at >= structs.MAX32:
        wide += at.to_bytes(8, "little")
    extra = structs.EXTRA.pack(structs.ZIP64_FIELD, len(wide)) + wide
    return _entry(size, len(raw), len(extra), min(at, structs.MAX32), crc) + raw + extra


def _near_entry(raw: bytes, size: int, at: int, crc: int) -> bytes:
    """Return the same for a record of less than 4 GiB that begins within the first 4 GiB."""
    head, middle = _around_sizes(bool(size), len(raw))
    return _SIZES(head, crc, size, size, middle, at) + raw


# an entry in three parts, of which the sizes and the offset are another for each record
_SIZES = Struct("<16sIII14sI").pack


@lru_cache(maxsize=1024)
def _around_sizes(filled: bool, length: int) -> tuple[bytes, bytes]:
    """Return what is before the checksum and sizes of an entry, and between them and its offset."""
    entry = _entry(filled, length, 0, 0, 0)
    return entry[:16], entry[28:42]


def _entry(size: int, name: int, extra: int, at: int, crc: int) -> bytes:
    both = [min(size, structs.MAX32)] * 2
    return structs.CENTRAL.pack(
        structs.CENTRAL_SIGNATURE, 0, 0, _flags(size), 0, 0, 0, crc, *both, name, extra, 0, 0, 0, 0, at
    )


def end_of(count: int, size: int, offset: int) -> bytes:
    """Return the end of the archive.

    It is the zip64 end record and locator, which torch writes always, and the end record.
    """
    rest = structs.END64.size - 12
    return (
        structs.END64.pack(structs.END64_SIGNATURE, rest, _MADE_BY, _VERSION_ZIP64, 0, 0, count, count, size, offset)
        + structs.LOCATOR.pack(structs.LOCATOR_SIGNATURE, 0, offset + size, 1)
        + structs.END.pack(
            structs.END_SIGNATURE,
            0,
            0,
            min(count, structs.MAX16),
            min(count, structs.MAX16),
            min(size, structs.MAX32),
            min(offset, structs.MAX32),
            0,
        )
    )


class _Joined:
    """Segments with neighbouring literals made one, and empty ones left out."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._pending: list[bytes] = []  # literals that go on
        self.add = self._pending.append

    def put(self, segment: Segment) -> None:
        """Put one more segment. Bytes are added by ``add``."""
        if isinstance(segment, Literal):
            self._pending.append(segment.data)
        elif segment.length:
            self._end_literal()
            self._segments.append(segment)

    def segments(self) -> list[Segment]:
        """Return all that were put."""
        self._end_literal()
        return self._segments

    def _end_literal(self) -> None:
        data = b"".join(self._pending)
        self._pending.clear()
        if data:
            self._segments.append(Literal(data))


def joined(segments: Iterable[Segment]) -> list[Segment]:
    """Return the same bytes with neighbouring literals made one, and empty segments left out."""
    made = _Joined()
    for segment in segments:
        made.put(segment)
    return made.segments()


# ---- where data lies in an archive of which only the directory is at hand, as ``torch.save`` lays archives out
#
# The header of each record, which says where its data begins, lies in front of it: over a network that would be a
# request for each tensor. torch computes the same offsets itself (``getRecordOffsetNoRead``).


_FLAGS = (structs.UTF8, structs.UTF8 | structs.HAS_DESCRIPTOR)


def predicted_records(entries: Sequence[Entry], directory_offset: int, remarks: Remarks) -> list[Record] | None:
    """Return the records of ``entries``, in the same order, which is that of the file.

    It is None where one is somewhere else.

    Each place is computed twice: forwards from its header's offset, and backwards from where the next record begins.
    """
    behind = [*(entry.offset for entry in entries[1:]), directory_offset]
    records = []
    for entry, following in zip(entries, behind, strict=True):
        raw, name, method, flags, crc, compressed, size, offset, directory = entry
        if size < structs.MAX32 and offset < structs.MAX32:  # the header need not be made to know how long it is
            begin = offset + structs.LOCAL.size + len(raw) + structs.EXTRA.size
            begin += -begin % DEFAULT_ALIGNMENT
            form = structs.DESCRIPTOR
        else:
            begin = offset + len(local_header(name, size, offset, DEFAULT_ALIGNMENT))
            form = structs.DESCRIPTOR64
        usual = method == structs.STORED and flags in _FLAGS and size == compressed
        if not usual or begin + size + (form.size if size else 0) != following:
            return None
        records.append(record_of((name, method, flags, crc, size, compressed, offset, begin, directory)))
    if records:
        message = f"the headers of {plural(len(records), 'record')}, each of which would need a request of its own"
        remarks.add(NoteKind.NOT_EXAMINED, message)
    return records
