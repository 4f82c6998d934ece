"""Random access to the bytes of a file, counting what was read. Remote files will offer the same three things."""

from __future__ import annotations

import os
import stat
from types import TracebackType
from typing import Protocol

from ckptdoctor.checkpoint.checkpoint import FileIdentity
from ckptdoctor.errors import TruncatedError, UnreadableError


class Source(Protocol):
    """Bytes that can be read at any offset. ``bytes_read`` grows with each read."""

    path: str
    size: int
    bytes_read: int

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes at ``offset``. Raises TruncatedError when the file ends before."""


class FileSource:
    """A local regular file, opened for reading. Raises UnreadableError when it cannot be opened."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.bytes_read = 0
        # O_NONBLOCK: opening a FIFO must not wait for a writer; it has no effect on regular files
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise UnreadableError(f"{self.path} cannot be opened: {error.strerror}.") from error
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            raise UnreadableError(f"{self.path} is not a regular file.")
        self.size = status.st_size
        self.identity = FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes at ``offset``. Raises TruncatedError when the file ends before."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise TruncatedError(
                f"{length} bytes are wanted at offset {offset}, but the file has {self.size}.", offset=offset
            )
        chunks = []
        while length:
            chunk = os.pread(self._fd, length, offset)
            if not chunk:
                raise TruncatedError(f"The file ended at byte {offset} while it was read.", offset=offset)
            chunks.append(chunk)
            offset, length = offset + len(chunk), length - len(chunk)
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self.bytes_read += len(data)
        return data

    def close(self) -> None:
        """Give the file back."""
        os.close(self._fd)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
