"""Random access to the bytes of a checkpoint, counting what was read: the protocol, and a local file."""

from __future__ import annotations

import os
import stat
from types import TracebackType
from typing import Protocol

from ckptdoctor.checkpoint.checkpoint import FileIdentity
from ckptdoctor.checkpoint.descriptors import READING, fill_at, read_at
from ckptdoctor.errors import TruncatedError, UnreadableError
from ckptdoctor.wording import system_says


class Source(Protocol):
    """Bytes that can be read at any offset; ``bytes_read`` grows with each read.

    ``path`` is what the person named, for messages. ``file`` is what extents call the file that the bytes lie in: the
    path of a local file wherever there is one, which may be another than ``path`` when that was packed.
    ``distant`` says that each read may cost a request over a network, so that headers must do.
    """

    path: str
    file: str
    size: int
    identity: FileIdentity | None
    distant: bool

    @property
    def bytes_read(self) -> int:
        """Bytes read so far; what was read twice counts twice."""

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes at ``offset``. Raises TruncatedError when the file ends before."""

    def part(self, file: str) -> Source:
        """Where the bytes of an extent in ``file`` are read. Raises UnreadableError when it cannot be opened."""

    def close(self) -> None:
        """Give back whatever is open."""


class FileSource:
    """A local regular file, opened for reading. Raises UnreadableError when it cannot be opened.

    ``path`` is what it is called in messages, where that is not the file itself.
    """

    distant = False

    def __init__(self, file: str | os.PathLike[str], path: str | None = None) -> None:
        self.file = os.fspath(file)
        self.path = self.file if path is None else path
        self._read = 0
        try:
            self._fd = os.open(self.file, READING)
        except OSError as error:
            raise UnreadableError(f"{self.path} cannot be opened: {system_says(error)}") from error
        except ValueError as error:  # a zero byte or half a surrogate pair, out of an index or a pickle
            raise UnreadableError(f"{self.path} cannot be opened: no file can have such a name.") from error
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            raise UnreadableError(f"{self.path} is not a regular file.")
        self.size = status.st_size
        self.identity: FileIdentity | None = FileIdentity(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        )

    @property
    def bytes_read(self) -> int:
        """Bytes read so far; what was read twice counts twice."""
        return self._read

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes at ``offset``. Raises TruncatedError when the file ends before."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise TruncatedError(
                f"{length} bytes are wanted at offset {offset}, but the file has {self.size}.", offset=offset
            )
        chunks = []
        while length:
            chunk = read_at(self._fd, length, offset)
            if not chunk:
                raise TruncatedError(f"The file ended at byte {offset} while it was read.", offset=offset)
            chunks.append(chunk)
            offset, length = offset + len(chunk), length - len(chunk)
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self._read += len(data)
        return data

    def fill(self, offset: int, view: memoryview) -> None:
        """Fill ``view`` with the bytes at ``offset``; threads may at once. Raises TruncatedError as ``read`` does."""
        done = 0
        while done < len(view):
            step = fill_at(self._fd, view[done:], offset + done)
            if not step:
                raise TruncatedError(f"The file ended at byte {offset + done} while it was read.", offset=offset + done)
            done += step
        self._read += done

    def part(self, file: str) -> Source:
        """Itself: all bytes of a checkpoint in one file are here."""
        return self

    def close(self) -> None:
        """Give the file back."""
        os.close(self._fd)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
