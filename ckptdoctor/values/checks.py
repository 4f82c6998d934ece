"""While values are read, their bytes are looked at for damage as well: they are in the cache of a core by then.

What is seen so needs no second look: storages of which every byte passed by once, with a checksum that fits, or without
a page of zeros. Of all others it is said that they are left, and ``facts.integrity`` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from threading import local

import numpy as np

from ckptdoctor.casting.arrays import Array
from ckptdoctor.checkpoint import Checkpoint, Extent, Source, Storage
from ckptdoctor.facts.integrity import HOLE, PAGE, Damage, Integrity, fastest, may_have_holes, note_of, readable
from ckptdoctor.noun import noun

_STEP = HOLE - PAGE  # of the pages that are looked at: a run of 64 KiB has one of them


@noun(frozen=False)
class _Run:
    """Bytes of a storage that one thread read in their order; ``blank`` once a page of them was zero."""

    start: int
    stop: int
    crc: int = 0
    blank: bool = False


class Checks:
    """What is known of the storages whose bytes threads have told it."""

    def __init__(self) -> None:
        self._runs: dict[str, list[_Run]] = {}
        self._own = local()

    def hear(self, storage: Storage, at: int, data: Array) -> None:
        """The next bytes of a storage, which begin at its byte ``at``."""
        checked = storage.crc32 is not None
        if not checked and (storage.nbytes < HOLE or not may_have_holes(storage)):
            return
        run = self._run(storage.key, at)
        if checked:
            run.crc = fastest()(data.data, run.crc)
        elif not run.blank:
            run.blank = _has_blank_page(data)
        run.stop += data.size

    def _run(self, key: str, at: int) -> _Run:
        """The run that this thread goes on with, or a new one."""
        known: tuple[str, _Run] | None = getattr(self._own, "last", None)
        if known is not None and known[0] == key and known[1].stop == at:
            return known[1]
        run = _Run(at, at)
        self._runs.setdefault(key, []).append(run)
        self._own.last = key, run
        return run

    def sound(self, checkpoint: Checkpoint, source: Source) -> dict[str, int]:
        """The storages that need no other look, each with the number of its bytes."""
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
        """Whether all bytes were heard, each once."""
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
        """What is known where the rest is not read any more."""
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


def _has_blank_page(data: Array) -> bool:
    """Whether a page is zero, of those that a run of 64 KiB cannot slip between: the last one is among them.

    A run that goes on in the next bytes has the last page of these, or the first one of those.
    """
    last = data.size - PAGE
    if last < 0:
        return not data.any()
    words = data[: last + 8].view(np.uint8)
    starts = words[: words.size - words.size % 8].view(np.uint64)[:: _STEP // 8]
    if np.count_nonzero(starts) == starts.size and data[last : last + 8].any():
        return False
    return any(not data[at : at + PAGE].any() for at in (*range(0, last + 1, _STEP), last))


# ---- the CRC-32 of two runs, one behind the other, as zlib's ``crc32_combine`` has it: Python offers none


_POLYNOMIAL = 0xEDB88320  # with the lowest power in the highest bit, as all others here


def combined(crc: int, other: int, length: int) -> int:
    """The CRC-32 of bytes with ``crc`` that ``length`` bytes with the CRC-32 ``other`` follow."""
    return _times(_power(length), crc) ^ other if length else crc


@lru_cache(maxsize=64)
def _power(length: int) -> int:
    """x to the power of 8 times ``length``."""
    found, factor = 1 << 31, 1 << 23
    while length:
        if length & 1:
            found = _times(factor, found)
        factor = _times(factor, factor)
        length >>= 1
    return found


def _times(one: int, other: int) -> int:
    """The product of two polynomials over GF(2), modulo that of CRC-32."""
    product = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            product ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product
