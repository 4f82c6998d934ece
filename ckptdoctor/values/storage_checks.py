"""Looks for damage in the bytes of storages while their values are read: they are in the cache of a core by then.

What is seen so needs no second look: storages of which every byte passed by once, with a checksum that fits, or without
a page of zeros. Of all others it is said that they are left, and ``examine.integrity`` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import local
from zlib import crc32

import numpy as np

from ckptdoctor.casting.arrays import Array
from ckptdoctor.checkpoint import Checkpoint, Extent, Source, Storage
from ckptdoctor.noun import noun
from ckptdoctor.values.crc32 import combined, crc32_over
from ckptdoctor.values.damage import HOLE, PAGE, Damage, Integrity, may_have_holes
from ckptdoctor.values.storage_damage import STEP, fastest, note_of, readable


@noun(frozen=False)
class _Run:
    """Bytes of a storage that one thread read in their order; ``blank`` once a page of them was zero."""

    start: int
    stop: int
    crc: int = 0
    blank: bool = False


class StorageChecks:
    """What is known of storages by the bytes that passed by. Threads that read values let it ``hear`` them."""

    def __init__(self) -> None:
        self._runs: dict[str, list[_Run]] = {}
        self._own = local()  # the last run of each thread, with the key of its storage

    def hear(self, storage: Storage, at: int, data: Array) -> None:
        """Take the next bytes of a storage, which begin at its byte ``at``. They are overwritten."""
        checked = storage.crc32 is not None
        if not checked and (storage.nbytes < HOLE or not may_have_holes(storage)):
            return
        key, run = getattr(self._own, "last", ("", _Run(0, 0)))
        if (key, run.stop) != (storage.key, at):
            run = _Run(at, at)
            self._own.last = storage.key, run
            self._runs.setdefault(storage.key, []).append(run)
        if checked:
            run.crc = _crc32(data, run.crc)
        elif not run.blank:
            run.blank = _has_blank_page(data)
        run.stop += data.size

    def sound(self, checkpoint: Checkpoint, source: Source) -> dict[str, int]:
        """Return the storages that need no other look, with their numbers of bytes, when all threads are over."""
        return {
            storage.key: extent.length
            for storage, extent in readable(checkpoint, source)
            if self._is_sound(storage, extent)
        }

    def _is_sound(self, storage: Storage, extent: Extent) -> bool:
        if storage.crc32 is None:
            return may_have_holes(storage) and (
                extent.length < HOLE or (self._is_whole(storage, extent) and not self._is_blank(storage))
            )
        return self._is_whole(storage, extent) and self._crc(storage) == storage.crc32

    def _is_whole(self, storage: Storage, extent: Extent) -> bool:
        """Return whether all bytes were heard, each once."""
        at = 0
        for run in self._in_order(storage):
            if run.start != at:
                return False
            at = run.stop
        return not storage.compressed and at == extent.length == storage.nbytes

    def _is_blank(self, storage: Storage) -> bool:
        return any(run.blank for run in self._in_order(storage))

    def _crc(self, storage: Storage) -> int:
        crc = 0
        for run in self._in_order(storage):
            crc = combined(crc, run.crc, run.stop - run.start)
        return crc

    def _in_order(self, storage: Storage) -> list[_Run]:
        return sorted(self._runs.get(storage.key, ()), key=lambda run: run.start)

    def integrity(self, checkpoint: Checkpoint, source: Source) -> Integrity:
        """Return what is known when the rest will not be read; threads may still be at work."""
        places = readable(checkpoint, source)
        found = tuple(self._damage(places))
        read = sum([run.stop - run.start for runs in self._runs.values() for run in runs])
        unchecked = sum(storage.crc32 is None for storage, _ in places)
        return Integrity(checkpoint, found, read, unchecked, tuple([note_of(each) for each in found]))

    def _damage(self, places: list[tuple[Storage, Extent]]) -> Iterator[Damage]:
        for storage, extent in places:
            if storage.crc32 is not None and self._is_whole(storage, extent):
                crc = self._crc(storage)
                if crc != storage.crc32:
                    yield Damage(storage, crc, ())


def _crc32(data: Array, crc: int) -> int:
    return crc32_over(data, crc) if fastest() is crc32 else fastest()(data.data, crc)


def _has_blank_page(data: Array) -> bool:
    """Return whether a page is zero, of those that a run of 64 KiB cannot slip between: the last one is among them.

    A run that goes on in the next bytes has the last page of these, or the first one of those.
    """
    last = data.size - PAGE
    if last < 0:
        return not data.any()
    words = data[: last + 8].view(np.uint8)
    starts = words[: words.size - words.size % 8].view(np.uint64)[:: STEP // 8]
    if np.count_nonzero(starts) == starts.size and data[last : last + 8].any():
        return False
    return any(not data[at : at + PAGE].any() for at in (*range(0, last + 1, STEP), last))
