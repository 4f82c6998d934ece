"""The records of a rewritten archive: copied as they are, inflated, cut down, or made anew."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from ckptdoctor.checkpoint import FileSource, Source
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch_objects import StoragePlan
from ckptdoctor.formats.torch_objects.plans import ReadStorage
from ckptdoctor.formats.torch_zip import structs
from ckptdoctor.formats.torch_zip.data import CHUNK, check_readable, chunks
from ckptdoctor.formats.torch_zip.layout import Item
from ckptdoctor.formats.torch_zip.record import Directory, Record, shown
from ckptdoctor.writing.recipe import Copy, Generated, Literal, Segment


def copied(source: Source, record: Record, name: str | None = None) -> Item:
    """The same data under the same or a new name, always stored: torch maps deflated records to garbage.

    Raises DamagedError when the record is encrypted, or does not inflate.
    """
    check_readable(record)
    data: Segment = Copy(record.data_offset, record.size)
    if record.method != structs.STORED:
        for _ in chunks(source, record):  # damage shows now, not when half the copy is written
            pass
        data = Generated(record.size, _reopened(source.file, lambda again: chunks(again, record)))
    return Item(record.name if name is None else name, record.size, record.crc, (data,))


def remade(source: Source, directory: Directory, plan: StoragePlan, sound: set[str] | None = None) -> Item:
    """The record of one storage of the output. ``sound`` gathers the names of records that were checked.

    Raises RefusedError when its bytes cannot be trusted or taken apart, DamagedError when they cannot be read.
    """
    name = f"{directory.prefix}/data/{plan.key}"
    if plan.new:
        segment = _new(source, plan)
        crc = _checksum(_bytes_of(source, (segment,))) if _summed(directory) else 0
        return Item(name, plan.nbytes, crc, (segment,))
    record = _found(directory, plan.old.key)
    if _untouched(plan, record):
        return copied(source, record, name)
    records = {key: _found(directory, key) for key in plan.sources or (plan.old.key,)}
    for each in records.values():
        if sound is None or each.name not in sound:
            _insist_on_sound(source, each)
            if sound is not None:
                sound.add(each.name)
    pieces = _pieces(source, records, plan)
    summed = any(each.crc for each in records.values())
    return Item(name, plan.nbytes, _checksum(_bytes_of(source, pieces)) if summed else 0, pieces)


def _found(directory: Directory, key: str) -> Record:
    record = directory.find(f"data/{key}")
    if record is None:
        raise RefusedError(f"Storage {shown(key)} has no record in the archive.")
    if record.method == structs.STORED and record.compressed != record.size:
        raise RefusedError(f"The record of storage {shown(key)} is cut off.")
    return record


def _new(source: Source, plan: StoragePlan) -> Segment:
    """Bytes that come from no record of the archive."""
    if plan.data is not None:
        return Literal(plan.data)
    generate = plan.generate
    assert generate is not None
    return Generated(plan.nbytes, _reopened(source.file, lambda _: generate(_nothing)))


def _nothing(key: str, offset: int, length: int) -> bytes:
    raise AssertionError(f"{length} bytes at {offset} of {key} were asked for, of which nothing was to be read")


def _insist_on_sound(source: Source, record: Record) -> None:
    """Raises RefusedError for a record that cannot be taken apart, or whose damage would be hidden by that."""
    check_readable(record)
    if record.method != structs.STORED:
        raise RefusedError(
            f"{shown(record.name)} is compressed, and cannot be taken apart; repair the file without this edit first, "
            "which writes it uncompressed."
        )
    if record.crc and _checksum(chunks(source, record)) != record.crc:
        raise RefusedError(
            f"{shown(record.name)} does not match its checksum, which this edit would hide; take another copy."
        )


def _summed(directory: Directory) -> bool:
    """Whether the archive has checksums: where it has none, a lone one would mean nothing."""
    return any(record.crc for record in directory.records)


def _untouched(plan: StoragePlan, record: Record) -> bool:
    every_byte = ((0, record.size),) if record.size else ()
    return plan.generate is None and plan.pieces in (None, every_byte)


def _pieces(source: Source, records: dict[str, Record], plan: StoragePlan) -> tuple[Segment, ...]:
    if plan.generate is not None:
        generate = plan.generate
        return (Generated(plan.nbytes, _reopened(source.file, lambda again: generate(_reader(again, records)))),)
    record = records[plan.old.key]
    return tuple(Copy(record.data_offset + offset, length) for offset, length in plan.pieces or ())


def _reader(source: Source, records: dict[str, Record]) -> ReadStorage:
    """Reads ``length`` bytes at ``offset`` of one of some stored records."""
    return lambda key, offset, length: source.read(records[key].data_offset + offset, length)


def _reopened(path: str, make: Callable[[Source], Iterator[bytes]]) -> Callable[[], Iterator[bytes]]:
    """Chunks from the file at ``path``, opened each time, because the source of the plan may be closed by then."""

    def produce() -> Iterator[bytes]:
        with FileSource(path) as source:
            yield from make(source)

    return produce


def _bytes_of(source: Source, segments: tuple[Segment, ...]) -> Iterator[bytes]:
    for segment in segments:
        if isinstance(segment, Copy):
            stop = segment.offset + segment.length
            for at in range(segment.offset, stop, CHUNK):
                yield source.read(at, min(CHUNK, stop - at))
        elif isinstance(segment, Literal):
            yield segment.data
        elif isinstance(segment, Generated):
            yield from segment.chunks()


def _checksum(pieces: Iterator[bytes]) -> int:
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    return crc
