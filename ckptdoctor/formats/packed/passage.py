"""What a compressed file unpacks to, as a source for readers that never go back; nothing is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from ckptdoctor.checkpoint import FileIdentity, Source
from ckptdoctor.errors import DamagedError, TruncatedError
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
        """Exactly ``length`` bytes at ``offset``, not before those read last. Raises TruncatedError, DamagedError."""
        stop = offset + length
        begin = self.at - len(self._piece)
        assert offset >= begin, "a passage goes forward"
        found = [self._piece[offset - begin : stop - begin]]
        while self.at < stop:
            begin = self.at
            if not self.go_on():
                raise self.error or TruncatedError(f"What is packed ends after {plural(begin, 'byte')}.", offset=begin)
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
        """Itself: all bytes are here."""
        return self

    def close(self) -> None:
        """Nothing: whoever opened the packed file closes it."""
