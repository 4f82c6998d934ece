"""The beginning of a compressed file, for headers that stand there: the rest is not unpacked until it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ckptdoctor.checkpoint import FileIdentity, NoteKind, Source
from ckptdoctor.checkpoint.wording import plural
from ckptdoctor.errors import CkptDoctorError, TruncatedError
from ckptdoctor.formats.safetensors.header import read_header
from ckptdoctor.formats.safetensors.reader import remember
from ckptdoctor.formats.safetensors.signature import LENGTH_BYTES, MAX_HEADER_BYTES
from ckptdoctor.formats.wrapped.streams import decompressed

# what says that it is no longer is unpacked as a whole, which tells whether it is: that takes a moment
SMALL = 64 << 20

_UNKNOWN = 1 << 62  # the size while nobody has said how long it is: longer than any


class Front:
    """What a compressed file unpacks to, from its beginning on, in memory; ``size`` is what its own header says.

    What lies further back is unpacked and forgotten up to there. ``file`` is "": no extent can name what is nowhere.
    """

    distant = False

    def __init__(self, source: Source, kind: str) -> None:
        self.path = source.path
        self.file = ""
        self.size = _UNKNOWN
        self.identity: FileIdentity | None = source.identity
        self._source = source
        self._kind = kind
        self._pieces = decompressed(source, kind)
        self._kept = bytearray()
        self._read = 0

    @property
    def bytes_read(self) -> int:
        """Unpacked bytes that were looked at so far."""
        return self._read

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes at ``offset``. Raises TruncatedError when it ends before, and DamagedError."""
        stop = offset + length
        if offset < 0 or length < 0 or stop > self.size:
            raise TruncatedError(
                f"{plural(length, 'byte is', 'bytes are')} wanted at offset {offset} of {self.size}.", offset=offset
            )
        if stop <= LENGTH_BYTES + MAX_HEADER_BYTES:
            while len(self._kept) < stop:
                self._kept += self._next(self._pieces, len(self._kept))
            data = bytes(memoryview(self._kept)[offset:stop])
        else:
            data = self._further(offset, stop)
        self._read += length
        return data

    def part(self, file: str) -> Source:
        """Itself: all bytes are here."""
        return self

    def close(self) -> None:
        """Nothing: whoever opened the packed file closes it."""

    def _further(self, offset: int, stop: int) -> bytes:
        pieces, at, found = decompressed(self._source, self._kind), 0, bytearray()
        while at < stop:
            piece = self._next(pieces, at)
            found += piece[max(0, offset - at) : stop - at]
            at += len(piece)
        return bytes(found)

    def _next(self, pieces: Iterator[bytes], at: int) -> bytes:
        piece = next(pieces, None)
        if piece is None:
            raise TruncatedError(f"What is packed ends after {plural(at, 'byte')}.", offset=at)
        return piece


def front_of(source: Source, kind: str) -> Front | None:
    """The inside of a compressed file whose whole contents are told by its beginning: a large safetensors file.

    None for everything else: what is small, what has a broken header, and what has its headers elsewhere.
    """
    inside = Front(source, kind)
    try:
        head = inside.read(0, LENGTH_BYTES + 1)
        if not head.endswith(b"{"):
            return None
        header = read_header(inside)
    except CkptDoctorError:  # unpacked as a whole, it is said what is wrong
        return None
    if header.end < SMALL or any(isinstance(each, str) for each in header.entries.values()):
        return None
    # that bytes follow its tensors was said of a size that nobody knows
    remember(inside, replace(header, notes=tuple([n for n in header.notes if n.kind is not NoteKind.TRAILING_BYTES])))
    inside.size = header.end
    return inside
