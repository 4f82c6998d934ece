"""Writes a stream that is read forward, once, into a temporary file: what is wanted, and holes for the rest."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import FileIdentity, Source
from ckptdoctor.errors import TruncatedError
from ckptdoctor.formats.packed.scratch import Writer
from ckptdoctor.wording import plural

_UNKNOWN = 1 << 62  # the size while nobody has said how long it is: longer than any
_PIECE = 1 << 20  # bytes that are written at a time: zeros of that length take no room


class Passing:
    """What is unpacked while it is unpacked, as a source for readers that never go back; what they read is kept.

    What they pass over is a hole. ``at`` is how far it is settled what becomes of the bytes. Once unpacking has failed,
    ``error`` says why, and every further call does.
    """

    distant = False

    def __init__(self, path: str, pieces: Iterator[bytes], writer: Writer, size: int | None = None) -> None:
        self.path = path
        self.file = ""
        self.size = _UNKNOWN if size is None else size
        self.identity: FileIdentity | None = None
        self.at = 0
        self.error: BaseException | None = None
        self._pieces = pieces
        self._writer = writer
        self._buffer = b""
        self._begin = 0  # where byte ``at`` is in it
        self._wanted = 0  # up to where all that is in the buffer is to be kept

    @property
    def bytes_read(self) -> int:
        """How far it came."""
        return self.at

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes at ``offset``, not before those read last. Raises TruncatedError."""
        found = self.peek(offset, length)
        if len(found) < length:
            message = f"{plural(length, 'byte is', 'bytes are')} needed at offset {offset}, past the end."
            raise TruncatedError(message, offset=offset)
        self.want(offset + length)
        return found

    def peek(self, offset: int, length: int) -> bytes:
        """Return the same, or as many as there are; what is only looked at need not be kept.

        Raises TruncatedError for what has passed by.
        """
        if offset < self.at:
            raise TruncatedError(f"Byte {offset} has passed by.", offset=offset)
        self.drop(offset)
        there = len(self._buffer) - self._begin
        if there < length:
            parts = [self._buffer[self._begin :]]
            while there < length:
                piece = self._next()
                if piece is None:
                    break
                parts.append(piece)
                there += len(piece)
            self._buffer, self._begin = b"".join(parts), 0
        return self._buffer[self._begin : self._begin + length]

    def keep(self, stop: int) -> None:
        """Write what comes before byte ``stop``, or all that there is."""
        while self.at < stop and self._more():
            part = self._buffer[self._begin : self._begin + min(stop - self.at, _PIECE)]
            self._settle(len(part), part)

    def drop(self, stop: int) -> None:
        """Leave a hole up to byte ``stop``, or to the end, behind what is wanted."""
        self.keep(min(self._wanted, stop))
        while self.at < stop and self._more():
            self._settle(min(stop - self.at, len(self._buffer) - self._begin), None)

    def want(self, stop: int) -> None:
        """Keep what comes before byte ``stop``, whoever reads how far."""
        self._wanted = max(self._wanted, stop)

    def end(self, whole: bool) -> None:
        """Settle the rest: keep it, or not. Raises what unpacking it raised.

        Where it is known how long that is, nothing of what is not kept needs to be unpacked.
        """
        if self.error is not None:
            raise self.error
        self.keep(_UNKNOWN if whole else self._wanted)
        if not whole and self.size < _UNKNOWN:
            self._writer.skip(max(0, self.size - self.at))
        elif not whole:
            self.drop(_UNKNOWN)

    def part(self, file: str) -> Source:
        """Return itself: all bytes are here."""
        return self

    def close(self) -> None:
        """Close nothing: whoever opened the packed file closes it."""

    def _settle(self, length: int, part: bytes | None) -> None:
        try:
            if part is None:
                self._writer.skip(length)
            else:
                self._writer.write(part)
        except BaseException as error:
            self.error = error
            raise
        self.at += length
        self._begin += length

    def _more(self) -> bool:
        if self._begin == len(self._buffer):
            self._buffer, self._begin = self._next() or b"", 0
        return bool(self._buffer)

    def _next(self) -> bytes | None:
        if self.error is not None:
            raise self.error
        try:
            return next(self._pieces, None)
        except BaseException as error:  # readers take it for damage of what they read
            self.error = error
            raise
