"""Reads the data of single records, stored or deflated, within bounds."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from ckptdoctor.checkpoint import Source
from ckptdoctor.errors import DamagedError, HostileError
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.record import Record, shown
from ckptdoctor.wording import plural

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
    """The data of a record, inflated where it is deflated.

    Raises HostileError when it is longer than ``limit`` bytes, DamagedError when it is encrypted, compressed by an
    unknown method, does not inflate to the size that the directory states, or lies outside the file.
    """
    check_readable(record)
    if record.size > limit:
        message = f"{shown(record.name)} is {record.size:,} bytes long; at most {limit:,} are read."
        raise HostileError(message, member=shown(record.name))
    if record.method == structs.STORED:
        return source.read(record.data_offset, record.size)
    return b"".join(chunks(source, record))


def check_readable(record: Record) -> None:
    """Raises DamagedError when nobody can read the data of this record: encrypted, or by an unknown method."""
    name = shown(record.name)
    if record.flags & (structs.ENCRYPTED | structs.PATCH | structs.STRONG_ENCRYPTION):
        raise DamagedError(f"{name} is marked as encrypted or as a patch.", member=name)
    if record.method not in (structs.STORED, structs.DEFLATED):
        message = f"{name} is compressed by method {record.method}, which torch cannot read."
        raise DamagedError(message, member=name)


def chunks(source: Source, record: Record) -> Iterator[bytes]:
    """The data of a readable record, piece by piece, in bounded memory. Raises DamagedError as read_record does."""
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
            f"{name} claims to inflate from {record.compressed:,} to {plural(record.size, 'byte')}, which cannot be."
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
