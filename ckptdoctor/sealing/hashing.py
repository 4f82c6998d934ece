"""Hashes a file in one read: all of it, the bytes between its regions, and each block of each region.

SHA-256 of everything and the digests of blocks are two hashes over the same bytes. Each has a thread of its own, and
hashing gives the interpreter free, so that on two cores both take little longer than one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.noun import noun

# fills a view with the bytes at an offset of the file
Fill = Callable[[int, memoryview], None]

_CHUNK = 4 << 20  # bytes that are read at once
_BUFFERS = 4  # chunks that are read, or hashed by one of the threads


@noun
class Digests:
    """What was hashed: all bytes, those in no span, and for each span the blocks of it that are there."""

    whole: str
    rest: str
    spans: tuple[tuple[str, ...], ...]


def hashed(fill: Fill, size: int, spans: Sequence[tuple[int, int]], block: int, work: Work) -> Digests:
    """Hash ``size`` bytes. ``spans`` are (offset, length), sorted and apart; what is behind the end is left out.

    Raises what ``fill`` raises, and StoppedError where ``work`` ends it.
    """
    whole, blocks = hashlib.sha256(), _Blocks(spans, block)
    buffers = [bytearray(min(_CHUNK, size)) for _ in range(_BUFFERS)]
    pending: list[tuple[Future[None], ...]] = [()] * _BUFFERS
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        for turn, at in enumerate(range(0, size, _CHUNK)):
            slot = turn % _BUFFERS
            for each in pending[slot]:
                each.result()
            view = memoryview(buffers[slot])[: min(_CHUNK, size - at)]
            fill(at, view)
            pending[slot] = (one.submit(whole.update, view), other.submit(blocks.hear, at, view))
            work.advance(len(view))
        for futures in pending:
            for each in futures:
                each.result()
    return Digests(whole.hexdigest(), blocks.rest.hexdigest(), blocks.end())


class _Blocks:
    """Hears the bytes of a file in their order, and hashes the blocks of spans, and what is in none."""

    def __init__(self, spans: Sequence[tuple[int, int]], block: int) -> None:
        self.rest = hashlib.sha256()
        self._block = block
        self._spans = spans
        self._found: list[list[str]] = [[] for _ in spans]
        self._next = 0  # the span that bytes are in, or come to next
        self._begun = hashlib.sha256()  # the block that was not heard to its end
        self._fed = 0  # bytes of it

    def hear(self, at: int, view: memoryview) -> None:
        """Take the next bytes, which begin at byte ``at`` of the file."""
        stop = at + len(view)
        here = at
        while here < stop:
            start, length = self._coming(here, stop)
            if here < start:
                end = min(start, stop)
                self.rest.update(view[here - at : end - at])
            else:
                boundary = here + self._block - self._fed
                end = min(start + length, boundary, stop)
                self._begun.update(view[here - at : end - at])
                self._fed += end - here
                if end in (boundary, start + length):
                    self._close()
            here = end

    def _coming(self, here: int, stop: int) -> tuple[int, int]:
        """Return the span that byte ``here`` is in, or comes to next; none begins at ``stop``."""
        while self._next < len(self._spans):
            start, length = self._spans[self._next]
            if start + length > here:
                return start, length
            self._next += 1
        return stop, 0

    def end(self) -> tuple[tuple[str, ...], ...]:
        """Return the digests of each span; the last block of one that the file ends in is what there is of it."""
        if self._fed:
            self._close()
        return tuple([tuple(each) for each in self._found])

    def _close(self) -> None:
        self._found[self._next].append(self._begun.hexdigest())
        self._begun, self._fed = hashlib.sha256(), 0
