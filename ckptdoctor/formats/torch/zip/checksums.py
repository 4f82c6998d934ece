"""Finds where an archive states the checksums of its records, for bytes that are replaced in their places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ckptdoctor.checkpoint import Source
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.central_directory import find_end
from ckptdoctor.formats.torch.zip.read import directory_of
from ckptdoctor.formats.torch.zip.records import Directory, Record, Remarks, shown

_LOCAL_CRC = 14  # where the checksum stands in a local header,
_CENTRAL_CRC = 16  # in an entry of the directory,
_DESCRIPTOR_CRC = 4  # and in a descriptor with a signature


def restated(source: Source, checksums: Mapping[str, int]) -> Iterator[tuple[int, bytes]]:
    """Yield what to write where, as (offset, bytes), so that the archive states these checksums, by key.

    A checksum is in the directory, and behind the data or in the header before it. Raises RefusedError where the
    archive states it in a way that leaves a doubt about what would be overwritten.
    """
    directory = directory_of(source)
    wanted: dict[int, int] = {}
    for key, crc in checksums.items():
        record = _stored(directory, key)
        wanted[record.header_offset] = crc
        yield from _at_the_record(source, record, crc)
    yield from _in_the_directory(source, wanted)


def _stored(directory: Directory, key: str) -> Record:
    record = directory.find(f"data/{key}")
    if record is None or record.method != structs.STORED or record.compressed != record.size:
        raise RefusedError(
            f"Storage {shown(key)} is not stored unchanged in the archive, so it cannot be replaced there."
        )
    return record


def _at_the_record(source: Source, record: Record, crc: int) -> Iterator[tuple[int, bytes]]:
    """Yield the checksum in the header before the data, and the one behind it."""
    packed = crc.to_bytes(4, "little")
    fields = structs.LOCAL.unpack(source.read(record.header_offset, structs.LOCAL.size))
    if fields[0] != structs.LOCAL_SIGNATURE:
        raise RefusedError(f"{shown(record.name)} has no header of its own where the directory points.")
    if fields[6]:  # with a descriptor there is 0
        yield record.header_offset + _LOCAL_CRC, packed
    if not record.flags & structs.HAS_DESCRIPTOR or not record.size:
        return
    for form in (structs.DESCRIPTOR, structs.DESCRIPTOR64):
        found = source.read(record.end, min(form.size, source.size - record.end))
        if len(found) == form.size and found[:4] == structs.DESCRIPTOR_SIGNATURE:
            values = form.unpack(found)
            if values[2:] == (record.compressed, record.size):
                yield record.end + _DESCRIPTOR_CRC, packed
                return
    if source.read(record.end, 4) == record.crc.to_bytes(4, "little"):  # the signature is optional
        yield record.end, packed
        return
    raise RefusedError(f"{shown(record.name)} has no valid descriptor after it: its checksum cannot be written there.")


def _in_the_directory(source: Source, wanted: Mapping[int, int]) -> Iterator[tuple[int, bytes]]:
    """Yield the checksums in the entries of the records whose headers are at these offsets."""
    end = find_end(source, Remarks())
    data = source.read(end.offset, end.size)
    records = directory_of(source).records
    at = 0
    for record in records:  # in the order of the directory
        crc = wanted.get(record.header_offset)
        if crc is not None:
            yield end.offset + at + _CENTRAL_CRC, crc.to_bytes(4, "little")
        name, extra, comment = structs.CENTRAL.unpack_from(data, at)[10:13]
        at += structs.CENTRAL.size + name + extra + comment
