"""Reads over a network: few requests, each for more than was asked, and what was fetched is kept."""

from __future__ import annotations

from typing import Protocol

from ckptdoctor.checkpoint import Source
from ckptdoctor.checkpoint.checkpoint import FileIdentity
from ckptdoctor.checkpoint.source import pace
from ckptdoctor.errors import TruncatedError, UnreadableError
from ckptdoctor.remote.downloading import download_first
from ckptdoctor.remote.published import Published
from ckptdoctor.wording import plural

# the beginning of a file, where headers are, and its end, where the directory of an archive is; together they are less
# than one percent of 100 MB, and the directory of 1,000 records fits
HEAD_BYTES = 64 << 10
TAIL_BYTES = 256 << 10

# reads of so much are values: fetched as they are asked for, and not kept
_LARGE = 1 << 20
# what is read in a row, with gaps of at most so much, is fetched in steps that grow up to this
_GAP = 64 << 10
_MOST_AHEAD = 16 << 20
_MOST_KEPT = 64 << 20

# headers need three or four; a file that is damaged or odd might need one for each of its tensors
MOST_REQUESTS = 40


class RemoteFile(Protocol):
    """A file on another machine. ``head`` is what opening it has already brought of its beginning.

    ``published`` are hashes of the whole file that its server has said so far.
    """

    size: int
    head: bytes
    published: tuple[Published, ...]

    def fetch(self, start: int, stop: int) -> bytes:
        """Return exactly these bytes. Raises UnreadableError when they cannot be had, after trying more than once."""

    def close(self) -> None:
        """End the connection."""


class RemoteSource:
    """The bytes of a remote file, for readers of headers."""

    identity: FileIdentity | None = None
    distant = True

    def __init__(self, path: str, file: RemoteFile, most_requests: int | None = None) -> None:
        self.path = self.file = path
        self.size = file.size
        self._remote = file
        self._blocks: list[tuple[int, bytes]] = [(0, file.head)] if file.head else []
        self._read = len(file.head)
        self._requests = 0
        self._most = MOST_REQUESTS if most_requests is None else most_requests

    @property
    def bytes_read(self) -> int:
        """Bytes fetched so far."""
        return self._read

    @property
    def published(self) -> tuple[Published, ...]:
        """The hashes of the whole file that its server publishes, as far as it has been asked."""
        return self._remote.published

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes at ``offset``.

        Raises TruncatedError when the file ends before, and UnreadableError when they cannot be fetched or this has
        taken too many requests.
        """
        stop = offset + length
        if offset < 0 or length < 0 or stop > self.size:
            raise TruncatedError(
                f"{plural(length, 'byte is', 'bytes are')} needed at offset {offset}, but the file has {self.size}.",
                offset=offset,
            )
        data = self._kept(offset, stop)
        if data is not None:
            return data
        if length >= _LARGE:
            return self._fetched(offset, stop)
        return self._wider(offset, stop)

    def fetch(self, offset: int, length: int) -> bytes:
        """Return the same as ``read``, and fetch nothing else with it, however little it is."""
        data = self._kept(offset, offset + length)
        return self._fetched(offset, offset + length) if data is None else data

    def part(self, file: str) -> Source:
        """Return itself: all bytes of a checkpoint in one file are here."""
        return self

    def close(self) -> None:
        """End the connection."""
        self._remote.close()

    def _kept(self, offset: int, stop: int) -> bytes | None:
        for start, data in self._blocks:
            if start <= offset and stop <= start + len(data):
                return data[offset - start : stop - start]
        return b"" if offset == stop else None

    def _wider(self, offset: int, stop: int) -> bytes:
        """Fetch more than is wanted, and keep it: all of the file's end, or more and more of what is read in a row."""
        begin = missing = min(offset, max(0, self.size - TAIL_BYTES)) if stop > self.size - TAIL_BYTES else offset
        before, ahead = b"", HEAD_BYTES
        for block in self._blocks:
            start, data = block
            end = start + len(data)
            if start <= begin <= end:
                self._blocks.remove(block)
                begin = start if len(data) < _LARGE else min(offset, end)
                before, missing = data[begin - start :], end
            if 0 <= missing - end <= _GAP:
                ahead = min(2 * len(data), _MOST_AHEAD)
                break
        end = min(self.size, max(stop, missing + ahead))
        self._count(end - missing)
        data = before + self._fetched(missing, end)
        self._keep(begin, data)
        return data[offset - begin : stop - begin]

    def _count(self, length: int) -> None:
        self._requests += length < _LARGE
        if self._requests > self._most:
            many = f"its contents cannot be determined in {self._most} requests for parts of it"
            raise UnreadableError(f"{self.path}: {many}: {download_first(self.path)}")

    def _keep(self, start: int, data: bytes) -> None:
        self._blocks.append((start, data))
        while sum(len(each) for _, each in self._blocks) > _MOST_KEPT and len(self._blocks) > 1:
            self._blocks.pop(0)

    def _fetched(self, start: int, stop: int) -> bytes:
        pace(stop - start)
        data = self._remote.fetch(start, stop)
        self._read += len(data)
        return data
