"""Files of images, plain or gzip, read exactly: not a byte less, not a byte more, no memory for mere claims."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

from ckptdoctor.errors import DamagedError, TruncatedError, UnreadableError

GZIP = b"\x1f\x8b"
CHUNK = 2**20


class Readable(Protocol):
    """What has bytes to read: a file, what gzip unpacks, a file in an archive."""

    def read(self, count: int, /) -> bytes:
        """Some of the next ``count`` bytes; none at the end."""


class Source:
    """A stream that is read from its beginning to its end. ``name`` is what messages call it."""

    def __init__(self, stream: Readable, name: str) -> None:
        self.stream = stream
        self.name = name
        self.position = 0

    def take(self, count: int, what: str) -> bytearray:
        """The next ``count`` bytes. Raises TruncatedError when there are fewer."""
        taken = self.take_most(count)
        if len(taken) < count:
            raise TruncatedError(
                f"{self.name} ends after {self.position} bytes, {count - len(taken)} before the end of {what}: "
                f"it is cut short; download it again",
                offset=self.position,
            )
        return taken

    def take_most(self, count: int) -> bytearray:
        """The next ``count`` bytes, or as many as there are.

        In chunks: what a header claims costs no memory before that much has really been read.
        """
        taken = bytearray()
        while len(taken) < count and (chunk := self.read(min(CHUNK, count - len(taken)))):
            taken += chunk
        return taken

    def end(self) -> None:
        """Raise DamagedError unless this is the end. gzip compares its checksum only here."""
        where = self.position
        if self.read(1):
            raise self.damaged("it goes on after its last image", where)

    def damaged(self, what: str, offset: int) -> DamagedError:
        """The error for what is wrong at a byte of the contents."""
        return DamagedError(f"{self.name} is damaged at byte {offset}: {what}; download it again", offset=offset)

    def read(self, count: int, /) -> bytes:
        """Some of the next ``count`` bytes; none at the end."""
        try:
            chunk = self.stream.read(count)
        except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.ReadError) as error:
            raise self._broken(error) from error
        except OSError as error:
            raise UnreadableError(f"{self.name} cannot be read: {error.strerror or error}") from error
        self.position += len(chunk)
        return chunk

    def _broken(self, error: Exception) -> DamagedError:
        where = f"after {self.position} bytes of its contents"
        if isinstance(error, EOFError):
            return TruncatedError(
                f"{self.name} is cut short: its compressed bytes end {where}; download it again", offset=self.position
            )
        return DamagedError(
            f"{self.name} is damaged {where}: {str(error).rstrip('.')}; download it again", offset=self.position
        )


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """A file as a Source. Its first bytes say whether it is gzip: a browser may have unpacked it and kept the name."""
    try:
        file = path.open("rb")
        start = file.peek(2)[:2]
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror or error}") from error
    with file:
        if start == GZIP:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield Source(unpacked, str(path))
        else:
            yield Source(file, str(path))


def as_tensor(contents: bytearray) -> torch.Tensor:
    """Bytes as a tensor over the same memory. There must be at least one."""
    return torch.frombuffer(contents, dtype=torch.uint8)
