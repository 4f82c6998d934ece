"""Reads every byte of the storages once, for checksums and for holes, and compares the file with the promised checksum.

It also compares embeddings with heads of which no checksums tell whether they are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType

from ckptdoctor.checkpoint import Checkpoint, FileSource, FolderSource, Source
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.checkpoint.sharing import compared
from ckptdoctor.errors import DamagedError, StoppedError
from ckptdoctor.examine.promised_checksums import bad_seals, digest_of, promise_of
from ckptdoctor.facts.names import TiedPair, tied_pairs
from ckptdoctor.values.damage import Damage, Integrity, Promise, may_have_holes
from ckptdoctor.values.storage_damage import CHUNK, Place, note_of, readable, scanned, scanned_in_part

_REQUEST = 4 << 20  # bytes of a read that is a request over a network
_THREADS = 2  # zlib checks 5 GB/s in one thread, and files are read faster than that


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
    bad = bad_seals(source)
    if promise is not None and digest != promise.digits:
        trouble = _contradiction(promise, source)
        promise, bad = (None, (*bad, trouble)) if trouble else (promise, bad)
    return Integrity(checkpoint, damage, work.done, unchecked, notes, promise, digest, tuple(twins), bad)


def _contradiction(promise: Promise, source: Source) -> str:
    """Return why the seal that a file is unlike cannot be right itself; "" where it can, or no seal promises it."""
    if not promise.seal or not isinstance(source, FileSource):
        return ""
    from ckptdoctor.sealing.verify import require_consistent

    try:
        require_consistent(source, promise.seal)
    except DamagedError as error:
        return error.message
    return ""


def _damaged(storages: Iterable[Place], source: Source, work: Work) -> list[Damage]:
    from concurrent.futures import ThreadPoolExecutor

    reader = _Reader(source, work)
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            return [each for batch in pool.map(reader.examine, _batches(storages)) for each in batch]
        except BaseException:  # Ctrl-C: the threads end after their chunk
            work.stop()
            raise


def integrity_bytes(checkpoint: Checkpoint, source: Source) -> int:
    """Return how many bytes ``examine_integrity`` reads, as far as that is known beforehand."""
    stored = sum([each.extent.length for each in checkpoint.storages if each.extent is not None])
    return stored + (source.size if promise_of(source) is not None else 0)


def _twins(checkpoint: Checkpoint, source: Source, work: Work) -> Iterator[TiedPair]:
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

    def examine(self, batch: Iterable[Place]) -> list[Damage]:
        """Return the damage of the storages that could be read to their end."""
        found: list[Damage] = []
        buffer = bytearray()
        for storage, extent in batch:
            if storage.crc32 is None and not may_have_holes(storage):
                continue
            file, part = self.source, _Part(self, extent.file)
            try:
                if storage.crc32 is None and isinstance(file, (FileSource, FolderSource)):
                    read = file.read if isinstance(file, FileSource) else part.read
                    found += scanned_in_part(storage, extent, read, self._go_on, self._tell)
                elif isinstance(file, FileSource):
                    buffer = buffer or bytearray(CHUNK)
                    found += scanned(storage, extent, partial(self._fill, file, buffer))
                else:
                    found += scanned(storage, extent, partial(self._read, part), _REQUEST)
            except StoppedError:
                break
        return found

    def _read(self, part: _Part, offset: int, length: int) -> bytes:
        """Return the next bytes. Raises StoppedError where nobody wants them."""
        with self.lock:
            self._go_on()
            chunk = part.read(offset, length)
        self._tell(length)
        return chunk

    def _fill(self, part: FileSource, buffer: bytearray, offset: int, length: int) -> bytes | bytearray:
        """Return the same in memory that is there already, while other threads read as well."""
        self._go_on()
        part.fill(offset, memoryview(buffer)[:length])
        self._tell(length)
        return buffer if length == len(buffer) else buffer[:length]

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
        """Return the bytes, while no other thread asks the source for some."""
        with self._reader.lock:
            return self._reader.source.part(self._file).read(offset, length)


def _batches(storages: Iterable[Place]) -> Iterator[list[Place]]:
    """Yield small storages together, so that handing them to a thread does not cost more than reading them."""
    batch: list[Place] = []
    size = 0
    for place in storages:
        batch.append(place)
        size += place[1].length
        if size >= CHUNK:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
