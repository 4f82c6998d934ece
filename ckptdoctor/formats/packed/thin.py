"""Reads what a compressed file unpacks to: in one passage forward, or as a file with holes in it.

Whoever reads in a hole gets what belongs there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from mmap import ACCESS_READ, mmap
from threading import Lock
from typing import Protocol

from ckptdoctor.checkpoint import FileIdentity, FileSource, Note, Source
from ckptdoctor.errors import DamagedError, TruncatedError, UnreadableError
from ckptdoctor.formats.arrays.pickled.stream import Hollow
from ckptdoctor.formats.packed import scratch
from ckptdoctor.formats.packed.scratch import written
from ckptdoctor.wording import plural


class Packed(Protocol):
    """A packed file that can be unpacked once more."""

    path: str
    file: str
    size: int
    identity: FileIdentity | None

    @property
    def pieces(self) -> Callable[[], Iterator[bytes]]:
        """All of it, from its first byte on."""


class Passage:
    """What a compressed file unpacks to, read forward and never back; ``hear`` gets each piece and where it begins.

    ``at`` is how far it came. Once unpacking has failed, ``error`` says why: then nothing more is to be had.
    """

    distant = False

    def __init__(self, packed: Packed, hear: Callable[[int, bytes], None]) -> None:
        self.path = packed.path
        self.file = packed.file
        self.size = packed.size
        self.identity = packed.identity
        self.at = 0
        self.error: DamagedError | None = None
        self._hear = hear
        self._pieces = packed.pieces()
        self._piece = b""  # the last one: it ends at ``at``

    @property
    def bytes_read(self) -> int:
        """Unpacked bytes that have passed by so far."""
        return self.at

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes at ``offset``, not before those read last.

        Raises TruncatedError, DamagedError.
        """
        stop = offset + length
        begin = self.at - len(self._piece)
        assert offset >= begin, "a passage goes forward"
        found = [self._piece[offset - begin : stop - begin]]
        while self.at < stop:
            begin = self.at
            if not self.go_on():
                raise self.error or TruncatedError(
                    f"The packed contents end after {plural(begin, 'byte')}.", offset=begin
                )
            found.append(self._piece[max(0, offset - begin) : max(0, stop - begin)])
        return b"".join(found)

    def go_on(self) -> bool:
        """Let the next piece pass by; False where there is none."""
        if self.error is not None:
            return False
        try:
            piece = next(self._pieces, None)
        except DamagedError as error:
            self.error = error
            return False
        if piece is None:
            return False
        begin, self.at, self._piece = self.at, self.at + len(piece), piece
        self._hear(begin, piece)
        return True

    def part(self, file: str) -> Source:
        """Return itself: all bytes are here."""
        return self

    def close(self) -> None:
        """Close nothing: whoever opened the packed file closes it."""


class Thin:
    """What was unpacked in part: the rest is unpacked when somebody asks for a part of it.

    ``file`` is "": extents name no file, for its values are not in it. ``pieces`` unpacks it once more; ``notes`` are
    those of its container.
    """

    distant = False

    def __init__(self, file: str, path: str, pieces: Callable[[], Iterator[bytes]]) -> None:
        self.path = path
        self.file = ""
        self.unpacked = file
        self.pieces = pieces
        self.notes: tuple[Note, ...] = ()
        self._file = FileSource(file, path)
        self.size = self._file.size
        self.identity: FileIdentity | None = self._file.identity
        self._lock = Lock()

    @property
    def bytes_read(self) -> int:
        """Bytes read so far; what was read twice counts twice."""
        return self._file.bytes_read

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes at ``offset``. Raises TruncatedError when it ends before."""
        self.need(offset, offset + length)
        return self._file.read(offset, length)

    def need(self, start: int, stop: int) -> None:
        """See to it that these bytes are in the file: where some are not, it is filled."""
        with self._lock:
            if any(begin < stop and start < end for begin, end in scratch.holes(self.unpacked)):
                self._fill()

    def whole(self) -> FileSource:
        """Return the file with everything in it."""
        with self._lock:
            if scratch.holes(self.unpacked):
                self._fill()
        return FileSource(self.unpacked, self.path)

    def mapped(self) -> mmap:
        """Return the file in memory, for readers of pickles: they look at what is there, and ask for the rest.

        Raises UnreadableError where it cannot be mapped.
        """
        try:
            with open(self.unpacked, "rb") as file:
                made = Hollow(file.fileno(), self.size, access=ACCESS_READ)
        except (OSError, ValueError) as error:
            raise UnreadableError(f"{self.path} cannot be mapped into memory: {error}.") from error
        made.need = self.need  # type: ignore[method-assign]
        return made

    def passage(self, hear: Callable[[int, bytes], None]) -> Passage:
        """Return all of it once more, from its first byte to its last one."""
        return Passage(self, hear)

    def part(self, file: str) -> Source:
        """Return itself: all bytes are here."""
        return self

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _fill(self) -> None:
        handle = os.open(self.unpacked, os.O_RDWR)
        try:
            done = written(self.pieces(), handle)
        finally:
            os.close(handle)
        if done != self.size:
            raise TruncatedError(f"{self.path} changed while it was read.", offset=min(done, self.size))
        scratch.lacks(self.unpacked, ())
