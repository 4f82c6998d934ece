"""What a file system says was never written of a file: the holes of sparse files, without reading them.

Programs that download a file in several parts, and copies of such files, leave a hole where a part is missing. Some
file systems make holes of zeros that were written, so what lies around one is read and held against its checksum.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Extent, FileSource, NoteKind, Storage
from ckptdoctor.checkpoint.descriptors import READING
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.facts.integrity import HOLE, Damage, may_have_holes, scanned
from ckptdoctor.facts.sparse_files import is_sparse

_MOST = 4096  # holes of one file that are looked at
_READ = 256 << 20  # bytes that are read to tell whether zeros were meant: what is beyond, --deep reads

_Range = tuple[int, int]  # first byte, and one past the last


def unwritten(checkpoint: Checkpoint) -> tuple[Damage, ...]:
    """The damage of the storages in which the file has holes, as a deep examination would find it.

    The file that a packed one was unpacked to has holes where there are zeros, which says nothing.
    """
    if any(note.kind is NoteKind.ARCHIVE_WRAPPED for note in checkpoint.notes):
        return ()
    if os.path.isfile(checkpoint.path) and not is_sparse(checkpoint.path):  # the common case: all bytes are there
        return ()
    files = {each.extent.file: None for each in checkpoint.storages if each.extent is not None}
    holes = {file: found for file in files if (found := holes_in(file))}
    return tuple(_damage(checkpoint, holes)) if holes else ()


def holes_in(path: str) -> tuple[_Range, ...]:
    """The ranges of 64 KiB and more of a local file that have no blocks on the disk; () where nobody can tell."""
    seek = getattr(os, "SEEK_HOLE", None)
    if seek is None or not is_sparse(path):
        return ()
    try:
        handle = os.open(path, READING)
    except (OSError, ValueError):  # gone, or not ours to read
        return ()
    try:
        return tuple(_holes(handle, os.fstat(handle).st_size))
    except OSError:  # the file system cannot tell
        return ()
    finally:
        os.close(handle)


def _holes(handle: int, size: int) -> Iterator[_Range]:
    at = 0
    for _ in range(_MOST):
        first = os.lseek(handle, at, os.SEEK_HOLE)
        if first >= size:
            return
        try:
            at = os.lseek(handle, first, os.SEEK_DATA)
        except OSError:  # there is no data behind it
            at = size
        if at - first >= HOLE:
            yield first, at
        if at >= size:
            return


def _damage(checkpoint: Checkpoint, holes: dict[str, tuple[_Range, ...]]) -> Iterator[Damage]:
    left = _READ
    for storage, extent in _suspects(checkpoint, holes):
        left -= extent.length
        if left < 0:
            return
        try:
            with FileSource(extent.file) as source:
                yield from scanned(storage, extent, source.read)
        except CkptDoctorError:  # it has changed meanwhile: a deep examination says so
            return


def _suspects(checkpoint: Checkpoint, holes: dict[str, tuple[_Range, ...]]) -> Iterator[tuple[Storage, Extent]]:
    for storage in checkpoint.storages:
        extent = storage.extent
        if extent is None or storage.compressed or extent.length < HOLE or not may_have_holes(storage):
            continue
        ranges = holes.get(extent.file, ())
        index = max(0, bisect_left(ranges, (extent.offset, 0)) - 1)
        for first, last in ranges[index:]:
            if first >= extent.offset + extent.length:
                break
            if min(last, extent.offset + extent.length) - max(first, extent.offset) >= HOLE:
                yield storage, extent
                break
