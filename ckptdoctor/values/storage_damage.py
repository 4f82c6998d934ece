"""Finds what is wrong with the bytes of one storage: a checksum that does not fit, or holes. It needs no NumPy.

Where a checksum fits, the zeros were meant.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Union

from ckptdoctor.checkpoint import Checkpoint, Extent, Note, NoteKind, Source, Storage
from ckptdoctor.values.damage import HOLE, PAGE, Damage, Hole, may_have_holes

CHUNK = 1 << 19  # bytes that each thread reads at a time: they are still in the cache when they are added up
_SLACK = 16  # zero bytes that a value beside a hole may end or begin with
_NOTHING = bytes(PAGE)
STEP = HOLE - PAGE  # bytes between the pages that are looked at: a run of 64 KiB has one of them
_GLANCE = 64  # bytes that nearly always tell that a page is not zero

Place = tuple[Storage, Extent]


def readable(checkpoint: Checkpoint, source: Source) -> list[Place]:
    """Return the storages whose bytes are in the file, in its order; the others have findings of their own."""
    sizes: dict[str, int] = {}
    inside = []
    for storage in checkpoint.storages:
        extent = storage.extent
        if extent is None:
            continue
        if extent.file not in sizes:
            sizes[extent.file] = source.part(extent.file).size
        if 0 <= extent.offset <= sizes[extent.file] - extent.length:
            inside.append((storage, extent))
    return sorted(inside, key=lambda place: (place[1].file, place[1].offset))


def note_of(damage: Damage) -> Note:
    """Return what an examination notes of it."""
    if damage.holes:
        length = sum(hole.length for hole in damage.holes)
        message = f"{length:,} bytes of storage {damage.storage.key} are zero"
        return Note(NoteKind.ZERO_FILLED, message, offset=damage.holes[0].offset)
    message = f"the checksum of storage {damage.storage.key} is wrong"
    offset = damage.storage.extent.offset if damage.storage.extent is not None else None
    return Note(NoteKind.CRC_MISMATCH, message, offset=offset)


def scanned(
    storage: Storage, extent: Extent, read: Callable[[int, int], bytes | bytearray], chunk: int = CHUNK
) -> Iterator[Damage]:
    """Yield the damage of one storage, whose bytes ``read`` (offset, length) gives."""
    scan = Scan(storage, extent)
    for offset in range(extent.offset, extent.offset + extent.length, chunk):
        scan.feed(read(offset, min(chunk, extent.offset + extent.length - offset)))
    yield from scan.damage()


class Scan:
    """Takes the bytes of one storage as they are in the file, and finds its damage: ``feed`` all, then ``damage``."""

    def __init__(self, storage: Storage, extent: Extent) -> None:
        self.storage = storage
        self.fed = 0
        self.crc = 0
        self.inflate = zlib.decompressobj(-zlib.MAX_WBITS) if storage.compressed else None
        self.inflated = 0
        self.broken = False
        holes = not storage.compressed and may_have_holes(storage)
        self.runs = _ZeroRuns(extent) if holes else None

    def feed(self, chunk: bytes | bytearray) -> None:
        """Take the next bytes of the record."""
        self.fed += len(chunk)
        if self.runs is not None:
            self.runs.feed(chunk)
        if self.storage.crc32 is None or self.broken:
            return
        if self.inflate is None:
            self.crc = fastest()(chunk, self.crc)
            return
        try:
            self._inflate(self.inflate, chunk)
        except zlib.error:
            self.broken = True

    def _inflate(self, inflate: zlib._Decompress, chunk: bytes | bytearray) -> None:
        while chunk and not self.broken:
            self._take(inflate.decompress(chunk, CHUNK))
            chunk = inflate.unconsumed_tail

    def _take(self, plain: bytes) -> None:
        self.inflated += len(plain)
        self.broken |= self.inflated > self.storage.nbytes  # a bomb need not be followed to its end
        self.crc = fastest()(plain, self.crc)

    def ends_early(self, storage: Storage, extent: Extent) -> None:
        """End it where the extent of the storage turned out to be shorter than it was said to be."""
        self.storage = storage
        if self.runs is not None:
            self.runs.extent = extent

    def damage(self) -> Iterator[Damage]:
        """Yield the storage's damage, once all its bytes were fed."""
        stored = self.storage.crc32
        if self.inflate is not None and not self.broken:
            self._take(self.inflate.flush())  # what is left when the last output was cut at its limit
        wrong = stored is not None and (self.broken or self.crc != stored)
        holes = self.runs.holes() if self.runs is not None and (wrong or stored is None) else ()
        if wrong or holes:
            yield Damage(self.storage, self.crc if wrong else None, holes)


# ---- holes


def scanned_in_part(
    storage: Storage,
    extent: Extent,
    read: Callable[[int, int], bytes],
    go_on: Callable[[], None],
    tell: Callable[[int], None],
) -> Iterator[Damage]:
    """Yield the holes of a storage without checksum: of the bytes between two pages there is nothing to know.

    ``go_on`` may raise before each chunk; ``tell`` gets the number of its bytes after it.
    """
    runs = _ZeroRuns(extent)
    at, told, stop = extent.offset, extent.offset, extent.offset + extent.length
    while told < stop:
        go_on()
        after = min(told + CHUNK, stop)
        while at < after and at + PAGE <= stop:
            if read(at, _GLANCE) == _NOTHING[:_GLANCE] and read(at, PAGE) == _NOTHING:
                runs.runs.append(_run_around(at, extent, read))
                at = max(at + STEP, runs.runs[-1][1])
            else:
                at += STEP
        tell(after - told)
        told = after
    holes = runs.holes()
    if holes:
        yield Damage(storage, None, holes)


def _run_around(at: int, extent: Extent, read: Callable[[int, int], bytes]) -> list[int]:
    """Return the run of zeros within an extent that a place is in: its first byte, and the one after its last."""
    first, last, stop = at, at, extent.offset + extent.length
    while first > extent.offset:
        block = read(max(extent.offset, first - HOLE), min(HOLE, first - extent.offset))
        zeros = _zeros_before(block, len(block))
        first -= zeros
        if zeros < len(block):
            break
    while last < stop:
        block = read(last, min(CHUNK, stop - last))
        zeros = _zeros_from(block, 0)
        last += zeros
        if zeros < len(block):
            break
    return [first, last]


class _ZeroRuns:
    """Finds long runs of zero pages by looking at one page in sixteen: a run of 64 KiB cannot slip through."""

    def __init__(self, extent: Extent) -> None:
        self.extent = extent
        self.position = extent.offset
        self.runs: list[list[int]] = []  # [first, one past the last zero byte], of runs long enough or still open

    def feed(self, chunk: bytes | bytearray) -> None:
        at = 0
        if self.runs and self.runs[-1][1] == self.position:  # a run may go on in this chunk
            at = _zeros_from(chunk, 0)
            self.runs[-1][1] += at
        while at < len(chunk):
            if chunk[at : at + PAGE] == _NOTHING[: len(chunk) - at]:
                first, last = at - _zeros_before(chunk, at), at + _zeros_from(chunk, at)
                self._add(self.position + first, self.position + last)
                at = last
            else:
                at += STEP
        # the last bytes may begin a run that goes on in the next chunk
        tail = _zeros_before(chunk, len(chunk))
        if tail and not (self.runs and self.runs[-1][1] == self.position + len(chunk)):
            self._add(self.position + len(chunk) - tail, self.position + len(chunk))
        self.position += len(chunk)

    def _add(self, first: int, last: int) -> None:
        self._forget_short()
        self.runs.append([first, last])

    def _forget_short(self) -> None:
        if self.runs and self.runs[-1][1] - self.runs[-1][0] < STEP:
            self.runs.pop()

    def holes(self) -> tuple[Hole, ...]:
        """Return the runs that look like holes; none in a storage that is zero from end to end."""
        self._forget_short()
        begin, end = self.extent.offset, self.extent.offset + self.extent.length
        found = []
        for first, last in self.runs:
            if (first, last) == (begin, end) or last - first < HOLE:
                continue
            starts = first == begin or -first % PAGE < _SLACK
            stops = last == end or last % PAGE < _SLACK
            if starts and stops:
                found.append(Hole(first, last - first))
        return tuple(found)


def _zeros_from(data: bytes | bytearray, at: int) -> int:
    """Return how many zero bytes ``data`` has from ``at`` on."""
    start = at
    while data[at : at + PAGE] == _NOTHING and at + PAGE <= len(data):
        at += PAGE
    rest = data[at : at + PAGE]
    return at - start + len(rest) - len(rest.lstrip(b"\0"))


def _zeros_before(data: bytes | bytearray, at: int) -> int:
    """Return how many zero bytes ``data`` has just before ``at``."""
    stop = at
    while at >= PAGE and data[at - PAGE : at] == _NOTHING:
        at -= PAGE
    rest = data[max(0, at - PAGE) : at]
    return stop - at + len(rest) - len(rest.rstrip(b"\0"))


# ---- CRC-32 as fast as this machine can: zlib-ng's where it is installed (``ckptdoctor[fast]``), else zlib's
#
# ``benchmarks/checksums.py`` measures it: zlib-ng is 6 to 8 times as fast as zlib, about as fast as memory is read, and
# ISA-L 5 to 6 times. All of them leave the interpreter to other threads.


Crc32 = Callable[[Union[bytes, bytearray, memoryview], int], int]


@cache
def fastest() -> Crc32:
    """Return a function like ``zlib.crc32``, with both arguments given."""
    try:
        from zlib_ng import zlib_ng  # type: ignore[import-not-found, unused-ignore]  # an extra
    except ImportError:
        return zlib.crc32
    faster: Crc32 = zlib_ng.crc32
    return faster
