"""Writes what is unpacked into a file that has holes where there are only zeros, as far as the disk has room."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

from ckptdoctor.checkpoint.progress import Work, phase
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.packed import scratch

# a tenth of what is free stays free
_SHARE = 0.9
_ZEROS = bytes(1 << 20)  # no piece of them is longer
_LOOK = 64 << 20  # so often the free space is looked at


def written(pieces: Iterator[bytes], handle: int) -> int:
    """Write all the pieces, and say how many bytes they are."""
    with phase("unpacking", 0) as work:
        writer = Writer(handle, work)
        for piece in pieces:
            writer.write(piece)
        writer.end()
    return writer.done


class Writer:
    """Writes a file from its beginning on: pieces of zeros alone become holes, which take no room on most disks.

    So does what is skipped; ``holes`` are where that was. Raises RefusedError where there is no room.
    """

    def __init__(self, handle: int, work: Work) -> None:
        self.done = 0
        self.holes: list[tuple[int, int]] = []
        self._handle = handle
        self._work = work
        self._room = int(shutil.disk_usage(scratch.folder()).free * _SHARE)
        self._taken = self._looked = 0

    def write(self, piece: bytes) -> None:
        """The next bytes."""
        hole = _ZEROS.startswith(piece)
        self._taken += 0 if hole else len(piece)
        if self._taken > self._room:
            raise RefusedError(
                f"Unpacking stopped after {self.done + len(piece):,} bytes, to leave some room on the disk of "
                f"{scratch.folder()}: unpack it yourself, or let TMPDIR name a folder with more room."
            )
        view = memoryview(b"" if hole else piece)
        with _refused():
            while view:
                view = view[os.write(self._handle, view) :]
        self._go_on(len(piece), hole)
        if self._taken - self._looked >= _LOOK:  # others write to the same disk
            free = shutil.disk_usage(scratch.folder()).free
            self._room = min(self._room, self._taken + int(free * _SHARE))
            self._looked = self._taken

    def skip(self, length: int) -> None:
        """Leave so many bytes out."""
        if not length:
            return
        begin, end = self.done, self.done + length
        if self.holes and self.holes[-1][1] == begin:
            begin = self.holes.pop()[0]
        self.holes.append((begin, end))
        self._go_on(length, True)

    def end(self) -> None:
        """Nothing comes any more."""
        with _refused():
            os.ftruncate(self._handle, self.done)

    def _go_on(self, length: int, hole: bool) -> None:
        self.done += length
        if hole:
            with _refused():
                os.lseek(self._handle, self.done, os.SEEK_SET)
        self._work.reach(self.done)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RefusedError(
            f"Unpacking stopped in {scratch.folder()}: {error.strerror}. Unpack it yourself, or let TMPDIR "
            "name a folder with more room."
        ) from error
