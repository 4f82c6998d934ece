"""Fetches storages of a file on another machine: those that lie close together by one request."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ckptdoctor.checkpoint import Extent, Source, Storage

# a run is at most so long, and has no larger gaps than this
_LONGEST = 64 << 20
_GAP = 1 << 20


class _Run(NamedTuple):
    """Bytes that are fetched together, and how many storages lie in them."""

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
        """A copy of the bytes of a storage. Raises UnreadableError or DamagedError when they cannot be had."""
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
