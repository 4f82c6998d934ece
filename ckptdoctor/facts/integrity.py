"""Reads every byte of the storages once, for checksums and for holes: the deep examination.

A hole is what an interrupted download leaves: a run of zero bytes, 64 KiB or longer, that begins or ends at a page
boundary of the file in the middle of values that are not zero. Where a checksum fits, the zeros were meant.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Union

from ckptdoctor.checkpoint import Checkpoint, Extent, FileSource, FolderSource, Note, NoteKind, Source, Storage
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.errors import StoppedError
from ckptdoctor.facts.siblings import Promise, digest_of, promise_of
from ckptdoctor.noun import noun

if TYPE_CHECKING:
    from ckptdoctor.facts.tied_embeddings import TiedPair

CHUNK = 1 << 19  # bytes that each thread reads at a time: they are still in the cache when they are added up
_REQUEST = 4 << 20  # the same where each read is a request over a network
PAGE = 4096
HOLE = 64 << 10  # shorter runs of zeros are too common in real weights
_SLACK = 16  # zero bytes that a value beside a hole may end or begin with
_NOTHING = bytes(PAGE)
_STEP = HOLE - PAGE  # of the pages that are looked at: a run of 64 KiB has one of them
_GLANCE = 64  # bytes that nearly always tell that a page is not zero
_THREADS = 2  # zlib checks 5 GB/s in one thread, and files are read faster than that

_Place = tuple[Storage, Extent]


@noun
class Hole:
    """``length`` zero bytes at ``offset`` of the file, within a storage that is not all zero."""

    offset: int
    length: int


@noun
class Damage:
    """What is wrong with the bytes of one storage: its checksum (None: it has none, or it fits) or holes."""

    storage: Storage
    computed: int | None
    holes: tuple[Hole, ...]


@noun
class Integrity:
    """What reading every byte of a checkpoint's storages showed.

    ``read`` counts the bytes. ``without_checksum`` counts the storages whose damage could not be seen for certain.
    ``digest`` is that of the whole file, worked out only where there is a ``promise`` to hold it against. ``twins``
    are the pairs of ``facts.tied_embeddings`` of which no checksums tell whether they are the same: those that were
    compared. Where it was broken off, it speaks of the storages that were read to their end, and of nothing else.
    """

    checkpoint: Checkpoint
    damage: tuple[Damage, ...]
    read: int
    without_checksum: int
    notes: tuple[Note, ...] = ()
    promise: Promise | None = None
    digest: str = ""
    twins: tuple[TiedPair, ...] = ()


def examine_integrity(
    checkpoint: Checkpoint, source: Source, work: Work | None = None, sound: Mapping[str, int] = MappingProxyType({})
) -> Integrity:
    """Read every storage once. ``work`` counts the bytes after each chunk, and may end it there.

    Two threads work on different storages, a chunk each in memory, whatever the file's size. Storages that have no
    checksum and hold no floating-point values are not read: nothing could be seen; nor are those that are ``sound``
    as is known from elsewhere, of each of which so many bytes were read. Raises TruncatedError when the file shrinks
    meanwhile.
    """
    storages = readable(checkpoint, source)
    work = work or Work()
    if sound:
        with suppress(StoppedError):
            work.advance(sum(sound.values()))
    unknown = [place for place in storages if place[0].key not in sound]
    found = _damaged(unknown, source, work) if unknown else []
    unchecked = sum(storage.crc32 is None for storage, _ in storages)
    promise = promise_of(source)
    digest = ""
    twins: list[TiedPair] = []
    try:
        digest = digest_of(source, promise.algorithm, work) if promise is not None else ""
        twins += _twins(checkpoint, source, work)
    except StoppedError:
        promise = promise if digest else None
    damage, notes = tuple(found), tuple([note_of(each) for each in found])
    return Integrity(checkpoint, damage, work.done, unchecked, notes, promise, digest, tuple(twins))


def _damaged(storages: Iterable[_Place], source: Source, work: Work) -> list[Damage]:
    from concurrent.futures import ThreadPoolExecutor

    reader = _Reader(source, work)
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            return [each for batch in pool.map(reader.examine, _batches(storages)) for each in batch]
        except BaseException:  # Ctrl-C: the threads end after their chunk
            work.stop()
            raise


def integrity_bytes(checkpoint: Checkpoint, source: Source) -> int:
    """How many bytes ``examine_integrity`` reads, as far as that is known beforehand."""
    stored = sum([each.extent.length for each in checkpoint.storages if each.extent is not None])
    return stored + (source.size if promise_of(source) is not None else 0)


def _twins(checkpoint: Checkpoint, source: Source, work: Work) -> Iterator[TiedPair]:
    from ckptdoctor.checkpoint.sharing import compared
    from ckptdoctor.facts.tied_embeddings import TiedPair, tied_pairs  # which needs what speaks of this module

    for pair in tied_pairs(checkpoint):
        same = compared(pair.head, pair.embedding, source, work=work) if pair.same is None else None
        if same is not None:
            yield TiedPair(pair.head, pair.embedding, same)


class _Reader:
    """Reads for several threads: a source counts its bytes, so that only one may read at a time."""

    def __init__(self, source: Source, work: Work) -> None:
        from threading import RLock  # only a deep examination needs threads

        self.source = source
        self.work = work
        self.lock = RLock()

    def examine(self, batch: Iterable[_Place]) -> list[Damage]:
        """The damage of the storages that could be read to their end."""
        found: list[Damage] = []
        buffer = bytearray()
        for storage, extent in batch:
            if storage.crc32 is None and not may_have_holes(storage):
                continue
            file, part = self.source, _Part(self, extent.file)
            try:
                if storage.crc32 is None and isinstance(file, (FileSource, FolderSource)):
                    found += self._sampled(storage, extent, file if isinstance(file, FileSource) else part)
                elif isinstance(file, FileSource):
                    buffer = buffer or bytearray(CHUNK)
                    found += scanned(storage, extent, partial(self._fill, file, buffer))
                else:
                    found += scanned(storage, extent, partial(self._read, part), _REQUEST)
            except StoppedError:
                break
        return found

    def _read(self, part: _Part, offset: int, length: int) -> bytes:
        """The next bytes. Raises StoppedError where nobody wants them."""
        with self.lock:
            self._go_on()
            chunk = part.read(offset, length)
        self._tell(length)
        return chunk

    def _fill(self, part: FileSource, buffer: bytearray, offset: int, length: int) -> bytes | bytearray:
        """The same in memory that is there already, while other threads read as well."""
        self._go_on()
        part.fill(offset, memoryview(buffer)[:length])
        self._tell(length)
        return buffer if length == len(buffer) else buffer[:length]

    def _sampled(self, storage: Storage, extent: Extent, part: FileSource | _Part) -> Iterator[Damage]:
        """The holes of a storage without checksum: of the bytes between two pages there is nothing to know."""
        runs = _ZeroRuns(extent)
        at, told, stop = extent.offset, extent.offset, extent.offset + extent.length
        while told < stop:
            self._go_on()
            after = min(told + CHUNK, stop)
            while at < after and at + PAGE <= stop:
                if part.read(at, _GLANCE) == _NOTHING[:_GLANCE] and part.read(at, PAGE) == _NOTHING:
                    runs.runs.append(_run_around(at, extent, part))
                    at = max(at + _STEP, runs.runs[-1][1])
                else:
                    at += _STEP
            self._tell(after - told)
            told = after
        holes = runs.holes()
        if holes:
            yield Damage(storage, None, holes)

    def _go_on(self) -> None:
        if self.work.stopped:
            raise StoppedError

    def _tell(self, length: int) -> None:
        with suppress(StoppedError):  # what has been read counts; nothing more is read
            self.work.advance(length)


class _Part:
    """A file as the source gives it out: asked for again with each read, for a folder closes the oldest of many."""

    def __init__(self, reader: _Reader, file: str) -> None:
        self._reader = reader
        self._file = file

    def read(self, offset: int, length: int) -> bytes:
        """The bytes, while no other thread asks the source for some."""
        with self._reader.lock:
            return self._reader.source.part(self._file).read(offset, length)


def _run_around(at: int, extent: Extent, part: FileSource | _Part) -> list[int]:
    """The run of zeros within an extent that a place is in: its first byte, and the one after its last."""
    first, last, stop = at, at, extent.offset + extent.length
    while first > extent.offset:
        block = part.read(max(extent.offset, first - HOLE), min(HOLE, first - extent.offset))
        zeros = _zeros_before(block, len(block))
        first -= zeros
        if zeros < len(block):
            break
    while last < stop:
        block = part.read(last, min(CHUNK, stop - last))
        zeros = _zeros_from(block, 0)
        last += zeros
        if zeros < len(block):
            break
    return [first, last]


def scanned(
    storage: Storage, extent: Extent, read: Callable[[int, int], bytes | bytearray], chunk: int = CHUNK
) -> Iterator[Damage]:
    """The damage of one storage, whose bytes ``read`` (offset, length) gives."""
    scan = Scan(storage, extent)
    for offset in range(extent.offset, extent.offset + extent.length, chunk):
        scan.feed(read(offset, min(chunk, extent.offset + extent.length - offset)))
    yield from scan.damage()


def _batches(storages: Iterable[_Place]) -> Iterator[list[_Place]]:
    """Small storages together, so that handing them to a thread does not cost more than reading them."""
    batch: list[_Place] = []
    size = 0
    for place in storages:
        batch.append(place)
        size += place[1].length
        if size >= CHUNK:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class Scan:
    """One storage on its way through the examination."""

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
        """The next bytes of the record."""
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
        """No more will be fed: the extent of the storage turned out to be shorter than it was said to be."""
        self.storage = storage
        if self.runs is not None:
            self.runs.extent = extent

    def damage(self) -> Iterator[Damage]:
        """The storage's damage, once all its bytes were fed."""
        stored = self.storage.crc32
        if self.inflate is not None and not self.broken:
            self._take(self.inflate.flush())  # what is left when the last output was cut at its limit
        wrong = stored is not None and (self.broken or self.crc != stored)
        holes = self.runs.holes() if self.runs is not None and (wrong or stored is None) else ()
        if wrong or holes:
            yield Damage(self.storage, self.crc if wrong else None, holes)


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
        step = _STEP
        while at < len(chunk):
            if chunk[at : at + PAGE] == _NOTHING[: len(chunk) - at]:
                first, last = at - _zeros_before(chunk, at), at + _zeros_from(chunk, at)
                self._add(self.position + first, self.position + last)
                at = last
            else:
                at += step
        # the last bytes may begin a run that goes on in the next chunk
        tail = _zeros_before(chunk, len(chunk))
        if tail and not (self.runs and self.runs[-1][1] == self.position + len(chunk)):
            self._add(self.position + len(chunk) - tail, self.position + len(chunk))
        self.position += len(chunk)

    def _add(self, first: int, last: int) -> None:
        self._forget_short()
        self.runs.append([first, last])

    def _forget_short(self) -> None:
        if self.runs and self.runs[-1][1] - self.runs[-1][0] < HOLE - PAGE:
            self.runs.pop()

    def holes(self) -> tuple[Hole, ...]:
        """The runs that look like holes; none in a storage that is zero from end to end."""
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
    """How many zero bytes ``data`` has from ``at`` on."""
    start = at
    while data[at : at + PAGE] == _NOTHING and at + PAGE <= len(data):
        at += PAGE
    rest = data[at : at + PAGE]
    return at - start + len(rest) - len(rest.lstrip(b"\0"))


def _zeros_before(data: bytes | bytearray, at: int) -> int:
    """How many zero bytes ``data`` has just before ``at``."""
    stop = at
    while at >= PAGE and data[at - PAGE : at] == _NOTHING:
        at -= PAGE
    rest = data[max(0, at - PAGE) : at]
    return stop - at + len(rest) - len(rest.rstrip(b"\0"))


def readable(checkpoint: Checkpoint, source: Source) -> list[_Place]:
    """The storages whose bytes are in the file, in the order of the file; the others have findings of their own."""
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


def may_have_holes(storage: Storage) -> bool:
    """Whether zeros within it would be odd: it holds floating-point values, as far as is known."""
    return storage.dtype is None or storage.dtype.kind in ("float", "complex")


def note_of(damage: Damage) -> Note:
    """What an examination notes of it."""
    if damage.holes:
        length = sum(hole.length for hole in damage.holes)
        message = f"{length:,} bytes of storage {damage.storage.key} are zero"
        return Note(NoteKind.ZERO_FILLED, message, offset=damage.holes[0].offset)
    message = f"the checksum of storage {damage.storage.key} is wrong"
    offset = damage.storage.extent.offset if damage.storage.extent is not None else None
    return Note(NoteKind.CRC_MISMATCH, message, offset=offset)


# ---- CRC-32 as fast as this machine can: zlib-ng's where it is installed (``ckptdoctor[fast]``), else zlib's
#
# ``benchmarks/checksums.py`` measures it: zlib-ng is 6 to 8 times as fast as zlib, about as fast as memory is read, and
# ISA-L 5 to 6 times. All of them leave the interpreter to other threads.


Crc32 = Callable[[Union[bytes, bytearray, memoryview], int], int]


@cache
def fastest() -> Crc32:
    """The function: like ``zlib.crc32``, with both arguments given."""
    try:
        from zlib_ng import zlib_ng  # type: ignore[import-not-found, unused-ignore]  # an extra
    except ImportError:
        return zlib.crc32
    faster: Crc32 = zlib_ng.crc32
    return faster
