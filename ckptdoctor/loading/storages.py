"""Gives the bytes of storages in memory, mapped from the file where that is possible."""

from __future__ import annotations

import mmap
import sys
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ckptdoctor.checkpoint import Checkpoint, Extent, Source, Storage
from ckptdoctor.checkpoint.dtypes import little_endian
from ckptdoctor.errors import DamagedError, UnreadableError
from ckptdoctor.wording import plural, system_says

# MAP_NORESERVE of Linux (asm-generic/mman-common.h), which the mmap module does not name: without it the kernel
# counts every private map as memory to come and refuses a file larger than what is free
NO_RESERVE = 0x4000 if sys.platform == "linux" else 0


class StorageReader:
    """Gives the bytes of each storage of one checkpoint once, whatever its device tag, so that ties stay ties.

    Stored records are views of a private, copy-on-write map of each file: nothing is read before it is used, and
    writing to a tensor never reaches the file. Compressed, byte-swapped and unaligned records are copied, and so are
    those of a file on another machine, which are fetched in a few large runs.
    """

    def __init__(self, checkpoint: Checkpoint, source: Source) -> None:
        self._source = source
        self._swapped = checkpoint.big_endian
        self._made: dict[str, memoryview] = {}
        self._maps: dict[str, memoryview] = {}
        self._runs = Runs(source, checkpoint.storages)

    def get(self, storage: Storage) -> memoryview:
        """Return the storage's bytes. Raises DamagedError when they are not all in the file."""
        if storage.key not in self._made:
            self._made[storage.key] = self._make(storage)
        return self._made[storage.key]

    def held(self, values: memoryview) -> memoryview:
        """Return a copy of what is in the pickle; the same object is copied once, so that ties stay ties."""
        key = f"held {id(values)}"  # never the key of a storage
        if key not in self._made:
            self._made[key] = memoryview(bytearray(values))
        return self._made[key]

    def _is_mapped(self, storage: Storage) -> bool:
        """Return whether the storage is a view of a file: neither compressed, byte-swapped, unaligned nor far away."""
        if storage.extent is None or not storage.extent.file or storage.compressed or self._source.distant:
            return False
        itemsize = _itemsize(storage)
        return storage.extent.offset % itemsize == 0 and not (self._swapped and itemsize > 1)

    def _make(self, storage: Storage) -> memoryview:
        extent = storage.extent
        if storage.nbytes == 0:
            return memoryview(bytearray())
        if extent is None or (not storage.compressed and extent.length < storage.nbytes):
            there = 0 if extent is None else extent.length
            raise DamagedError(
                f"Storage {storage.key} of {self._source.path} should have {plural(storage.nbytes, 'byte')}, "
                f"but the file has {there:,}; ckptdoctor check shows the damage.",
                offset=None if extent is None else extent.offset,
            )
        if storage.compressed:
            return self._swap(storage, _inflated(self._source, storage))
        if self._source.distant:
            return self._swap(storage, self._runs.get(extent))
        if not self._is_mapped(storage):
            return self._swap(storage, bytearray(self._source.part(extent.file).read(extent.offset, storage.nbytes)))
        if extent.file not in self._maps:
            self._maps[extent.file] = _mapped(extent.file)
        return self._maps[extent.file][extent.offset : extent.offset + storage.nbytes]

    def _swap(self, storage: Storage, made: bytearray) -> memoryview:
        """Return the bytes in the order of this machine."""
        if self._swapped and _itemsize(storage) > 1 and storage.dtype is not None:
            if storage.nbytes % _itemsize(storage):
                raise DamagedError(
                    f"Storage {storage.key} of {self._source.path} cannot be converted to this machine's "
                    f"byte order: its {plural(storage.nbytes, 'byte is', 'bytes are')} not a whole number of "
                    f"{storage.dtype.name} elements.",
                    offset=None if storage.extent is None else storage.extent.offset,
                )
            made = bytearray(little_endian(bytes(made), storage.dtype))
        return memoryview(made)


def _itemsize(storage: Storage) -> int:
    return 1 if storage.dtype is None else max(1, storage.dtype.bits // 8)


def _mapped(path: str) -> memoryview:
    """Return a private, copy-on-write map of the whole file."""
    try:
        with open(path, "rb") as file:
            if NO_RESERVE:
                flags = mmap.MAP_PRIVATE | NO_RESERVE
                mapped = mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            else:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be mapped into memory: {system_says(error)}") from error
    except ValueError as error:  # of a file that has become empty since its headers were read
        raise UnreadableError(f"{path} cannot be mapped into memory: it is empty now.") from error
    return memoryview(mapped)


def _inflated(source: Source, storage: Storage) -> bytearray:
    """Return a deflated record's contents: never more than the storage declares."""
    assert storage.extent is not None
    packed = source.part(storage.extent.file).read(storage.extent.offset, storage.extent.length)
    try:
        data = zlib.decompressobj(-15).decompress(packed, min(storage.nbytes + 1, sys.maxsize))
    except zlib.error as error:
        raise DamagedError(f"The compressed record of storage {storage.key} is damaged: {error}.") from error
    if len(data) != storage.nbytes:
        raise DamagedError(
            f"The compressed record of storage {storage.key} does not unpack to its {plural(storage.nbytes, 'byte')}."
        )
    return bytearray(data)


# ---- fetches storages of a file on another machine: those that lie close together by one request


# a run is at most so long, and has no larger gaps than this
_LONGEST = 64 << 20
_GAP = 1 << 20


class _Run(NamedTuple):
    """Bytes that are fetched together, and how many storages are in them."""

    start: int
    stop: int
    storages: int


class Runs:
    """The bytes of storages. A run is let go once each of its storages has been asked for."""

    def __init__(self, source: Source, storages: Sequence[Storage]) -> None:
        self._source = source
        self._runs: list[_Run] = list(_runs(storages)) if source.distant else []
        self._starts = [run.start for run in self._runs]
        self._fetched: dict[int, tuple[bytes, int]] = {}

    def get(self, extent: Extent) -> bytearray:
        """Return a copy of the bytes of a storage. Raises UnreadableError or DamagedError when they cannot be had."""
        index = bisect_right(self._starts, extent.offset) - 1
        run = self._runs[index]
        if index not in self._fetched:
            self._fetched[index] = self._whole(run, extent), run.storages
        data, left = self._fetched.pop(index)
        if left > 1:
            self._fetched[index] = data, left - 1
        begin = extent.offset - run.start
        return bytearray(memoryview(data)[begin : begin + extent.length])

    def _whole(self, run: _Run, extent: Extent) -> bytes:
        return self._source.part(extent.file).read(run.start, run.stop - run.start)


def _runs(storages: Sequence[Storage]) -> Iterator[_Run]:
    stored = [each.extent for each in storages if each.extent is not None and not each.compressed]
    places = {extent for extent in stored if extent.length}
    start = stop = count = 0
    for offset, end in sorted((place.offset, place.offset + place.length) for place in places):
        if count and (offset > stop + _GAP or max(stop, end) - start > _LONGEST):
            yield _Run(start, stop, count)
            count = 0
        if not count:
            start = stop = offset
        stop, count = max(stop, end), count + 1
    if count:
        yield _Run(start, stop, count)
