"""Writes the parity of a file next to it: a second read, in which every block meets those of its group."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from hashlib import sha256

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.sealing.parity.code import SLICE, parity_of
from ckptdoctor.sealing.parity.layout import Layout
from ckptdoctor.sealing.parity.table import KIND, SUM, Table, encoded, foot_of, head_of, is_parity, length_of
from ckptdoctor.writing.fresh import fill_fresh
from ckptdoctor.writing.system import put

_THREADS = 2  # groups that are worked on at once; each has its own slices in memory


def write_parity(
    source: FileSource,
    layout: Layout,
    digest: str,
    percent: float,
    output: str,
    work: Work,
    *,
    force: bool,
    undo: ExitStack,
) -> bytes:
    """Write the parity of a file whose SHA-256 is ``digest``, and return the table of it.

    ``work`` counts the bytes of the file; where ``undo`` is unwound, a new file is removed again. Raises what
    ``fill_fresh`` raises, and StoppedError where ``work`` ends it.
    """
    table: list[bytes] = []

    def fill(fd: int) -> None:
        start = length_of(head_of(layout, digest, percent), layout)
        sums = _Maker(source, layout, fd, start, work).make()
        table.append(encoded(Table(layout, digest, percent, sums)))
        put(fd, table[0], 0)
        put(fd, table[0] + foot_of(start), start + layout.parities * layout.block)

    kind = b"" if is_parity(output) else KIND  # one whose first bytes are damaged is one as well
    fill_fresh(fill, output, kind, force=force, what="parity file", undo=undo)
    return table[0]


class _Maker:
    """Makes the blocks of parity in their places in a file, group by group, and collects the checksums of all."""

    def __init__(self, source: FileSource, layout: Layout, fd: int, start: int, work: Work) -> None:
        self._source, self._layout, self._fd, self._start, self._work = source, layout, fd, start, work
        self._sums = bytearray((layout.blocks + layout.parities) * SUM)

    def make(self) -> bytes:
        """Return the checksums of the blocks of the file, and of those of parity."""
        pending: deque[Future[None]] = deque()
        with ThreadPoolExecutor(_THREADS) as threads:
            for group in range(self._layout.groups):
                if len(pending) == _THREADS:
                    pending.popleft().result()
                pending.append(threads.submit(self._group, group))
            while pending:
                pending.popleft().result()
        return bytes(self._sums)

    def _group(self, group: int) -> None:
        layout = self._layout
        members = layout.members(group)
        parities = range(group, layout.parities, layout.groups)
        hashes = [sha256() for _ in (*members, *parities)]
        step = min(SLICE, layout.block)  # both are powers of two
        buffer = memoryview(bytearray(layout.data * step))
        shares = [buffer[each * step : (each + 1) * step] for each in range(layout.data)]
        for at in range(0, layout.block, step):
            for block, share, each in zip(members, shares, hashes, strict=False):
                view = share[: max(0, min(step, layout.length(block) - at))]
                self._source.fill(block * layout.block + at, view)
                share[len(view) :] = bytes(step - len(view))
                each.update(view)
                self._work.advance(len(view))
            for block, made, each in zip(parities, parity_of(layout, shares), hashes[len(members) :], strict=True):
                each.update(made)
                put(self._fd, made, self._start + block * layout.block + at)
        for block, each in zip((*members, *[layout.blocks + each for each in parities]), hashes, strict=True):
            self._sums[block * SUM : (block + 1) * SUM] = each.digest()[:SUM]
