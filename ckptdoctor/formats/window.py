"""Makes a source of a part of another: a file inside another file, or bytes in memory."""

from __future__ import annotations

from ckptdoctor.checkpoint import FileIdentity, Source
from ckptdoctor.errors import TruncatedError
from ckptdoctor.wording import plural


class Window:
    """``length`` bytes of ``outer`` from ``start`` on; offsets count from there."""

    def __init__(self, outer: Source, start: int, length: int) -> None:
        self.path = outer.path
        self.file = outer.file
        self.size = length
        self.identity: FileIdentity | None = outer.identity
        self.distant = outer.distant
        self._outer = outer
        self._start = start

    @property
    def bytes_read(self) -> int:
        """Bytes that were read of the whole source so far."""
        return self._outer.bytes_read

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes at ``offset``. Raises TruncatedError when the window ends before."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise TruncatedError(
                f"{plural(length, 'byte is', 'bytes are')} needed at offset {offset} of a file of "
                f"{self.size} inside {self.path}.",
                offset=offset,
            )
        return self._outer.read(self._start + offset, length)

    def part(self, file: str) -> Source:
        """Return itself: all bytes are here."""
        return self

    def close(self) -> None:
        """Close nothing: whoever opened the whole source closes it."""


class Part(Window):
    """A file inside another file, of which only headers are read: ``file`` is "", and no extent can name it."""

    def __init__(self, outer: Source, start: int, length: int, path: str) -> None:
        super().__init__(outer, start, length)
        self.path = path
        self.file = ""


class Memory:
    """Bytes that were taken out of a file, as a source. ``file`` is "": no extent can name them."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.file = ""
        self.size = len(data)
        self.identity: FileIdentity | None = None
        self.distant = False
        self.data = data

    @property
    def bytes_read(self) -> int:
        """Nothing is read from a file."""
        return 0

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes at ``offset``. Raises TruncatedError when there are fewer."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise TruncatedError(
                f"{plural(length, 'byte is', 'bytes are')} needed at offset {offset} of {self.size}.", offset=offset
            )
        return self.data[offset : offset + length]

    def part(self, file: str) -> Source:
        """Return itself: all bytes are here."""
        return self

    def close(self) -> None:
        """Nothing is open."""
