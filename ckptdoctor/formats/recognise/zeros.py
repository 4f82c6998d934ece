"""Recognises files of nothing but zero bytes: space that was reserved and never filled."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ckptdoctor.checkpoint import Note, NoteKind, Source
from ckptdoctor.checkpoint.source import READING
from ckptdoctor.formats.recognise.magic import Found

# files with more bytes on disk than this are looked at in places only
_FULL_SCAN = 1 << 30
_CHUNK = 1 << 20
_PLACES = 256
_DISTANT_PLACES = 8
_PAGE = 4096

_ADVICE = "Nothing was ever written to it: download or copy it again."


def recognise_zeros(source: Source, head: bytes) -> Found | None:
    """Return a file that is zero as far as was looked, or whose beginning is.

    It is None when it begins with something else.
    """
    if head.strip(b"\0"):
        return None
    ranges = list(_written(source))
    on_disk = sum(length for _, length in ranges)
    whole = on_disk <= (_CHUNK if source.distant else _FULL_SCAN)
    places = _DISTANT_PLACES if source.distant else _PLACES
    looked = _all_of(ranges) if whole else _places(source.size, places)
    for offset, length in looked:
        if source.read(offset, length).strip(b"\0"):
            return Found("", f"It begins with zero bytes, and has others from about byte {offset:,} on: {_LOST}")
    if whole:
        message = f"all {source.size:,} bytes are zero"
    else:
        message = f"the file is zero at both ends and in {places:,} places between, of {source.size:,} bytes"
    return Found("", _ADVICE, (Note(NoteKind.ZERO_FILLED, message, offset=0),))


_LOST = "its beginning was lost, so its format cannot be determined. Download or copy it again."


def _all_of(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for start, length in ranges:
        for offset in range(start, start + length, _CHUNK):
            yield offset, min(_CHUNK, start + length - offset)


def _places(size: int, count: int) -> Iterator[tuple[int, int]]:
    step = (size - _PAGE) // (count + 1)
    for index in range(count + 1):
        yield index * step, _PAGE
    yield size - _PAGE, _PAGE


def _written(source: Source) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the file that take room on the disk.

    The holes of a sparse file are zero without being read.
    """
    if source.distant:
        yield 0, source.size
        return
    try:
        handle = os.open(source.file, READING)
    except OSError:  # it was removed or locked meanwhile: the open source still reads all of it
        yield 0, source.size
        return
    try:
        status = os.fstat(handle)
        known = source.identity
        same = known is not None and (status.st_dev, status.st_ino) == (known.device, known.inode)
        yield from _extents(handle, source.size) if same else [(0, source.size)]
    finally:
        os.close(handle)


def _extents(handle: int, size: int) -> Iterator[tuple[int, int]]:
    if not hasattr(os, "SEEK_DATA"):
        yield 0, size
        return
    end = 0
    while end < size:
        try:
            start = os.lseek(handle, end, os.SEEK_DATA)
            end = os.lseek(handle, start, os.SEEK_HOLE)
        except OSError:  # ENXIO: no data from here on; where the file system knows no holes there is one big range
            return
        if start < size:
            yield start, min(end, size) - start
