"""Reads the bytes of a checkpoint at any place, counting them: the protocol, a local file, and a folder."""

from __future__ import annotations

import io
import os
import stat
from _thread import allocate_lock
from collections.abc import Iterable, Mapping
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Protocol
from weakref import WeakSet

from ckptdoctor.checkpoint.checkpoint import FileIdentity
from ckptdoctor.errors import HostileError, MissingFileError, TruncatedError, UnreadableError
from ckptdoctor.wording import system_says

# O_NONBLOCK: opening a FIFO must not wait for a writer; it has no effect on regular files. O_BINARY: Windows would
# otherwise translate line ends and stop at a Ctrl-Z. Each system has only one of the two
READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

MOVING = allocate_lock()  # threads that read and write one file must not move its position under each other


class _Pace:
    """How fast this process reads: ``rate`` bytes a second (0: any number). At ``free`` all is over that was begun."""

    rate = 0.0
    free = 0.0
    lock = allocate_lock()


def limit_rate(rate: float) -> None:
    """Read at most so many bytes a second from now on, in all threads of this process together; 0 ends the limit."""
    _Pace.rate = rate


def pace(count: int) -> None:
    """Wait as long as so many bytes take at the limit of this process."""
    if not _Pace.rate:
        return
    with _Pace.lock:
        now = monotonic()
        _Pace.free = over = max(_Pace.free, now) + count / _Pace.rate
    sleep(over - now)


def fill_at(fd: int, view: memoryview, offset: int) -> int:
    """Read the bytes at ``offset`` into ``view``: how many there were, fewer or none where the file ends."""
    pace(len(view))
    if hasattr(os, "preadv"):
        return os.preadv(fd, [view], offset)
    data = read_at(fd, len(view), offset)
    view[: len(data)] = data
    return len(data)


def read_at(fd: int, length: int, offset: int) -> bytes:
    """Return at most ``length`` bytes at ``offset``; fewer, or none, where the file ends. Raises OSError."""
    pace(length)
    if hasattr(os, "pread"):
        return os.pread(fd, length, offset)
    with MOVING:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, length)


class Source(Protocol):
    """Bytes that can be read at any offset; ``bytes_read`` grows with each read.

    ``path`` is what the person named, for messages. ``file`` is what extents call the file that the bytes are in: the
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
        """Return exactly ``length`` bytes at ``offset``. Raises TruncatedError when the file ends before."""

    def part(self, file: str) -> Source:
        """Return where the bytes of an extent in ``file`` are read. Raises UnreadableError when it cannot be opened."""

    def close(self) -> None:
        """Close whatever is open."""


# sources of which more is wanted after they were read: readers may keep what that needs again
_rewritten: WeakSet[Source] = WeakSet()
_judged: WeakSet[Source] = WeakSet()


def to_be_rewritten(source: Source) -> None:
    """Promise that this source is read in order to write a changed copy of it."""
    _rewritten.add(source)


def is_rewritten(source: Source) -> bool:
    """Return whether that was promised."""
    return source in _rewritten


def to_be_judged(source: Source) -> None:
    """Promise that this source is read, and then asked about whether torch refuses it with ``weights_only``."""
    _judged.add(source)


def is_judged(source: Source) -> bool:
    """Return whether that was promised."""
    return source in _judged


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
        except FileNotFoundError as error:
            message = f"{self.path} cannot be opened: {system_says(error)}"
            if any(sign in self.path for sign in "*?["):  # a pattern that the shell left as it was
                message = f"No file matches {self.path}."
            raise MissingFileError(message, filename=self.path) from error
        except OSError as error:
            raise UnreadableError(f"{self.path} cannot be opened: {system_says(error)}") from error
        except ValueError as error:  # a zero byte or half a surrogate pair, out of an index or a pickle
            raise UnreadableError(f"{self.path} cannot be opened: that is not a possible file name.") from error
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
        """Return exactly ``length`` bytes at ``offset``. Raises TruncatedError when the file ends before."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise TruncatedError(
                f"{length} bytes are needed at offset {offset}, but the file has {self.size}.", offset=offset
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
        """Return itself: all bytes of a checkpoint in one file are here."""
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


# ---- a folder, whose files are opened when their bytes are wanted


# names that are looked at in one folder, at most
MOST_NAMES = 20_000
# files kept open at once; opening one again costs little
_MOST_OPEN = 64


class FolderSource:
    """The files below a local folder. Raises UnreadableError when it cannot be listed.

    ``names`` are those directly in it, sorted, folders with a slash behind them. It has no bytes of its own: ``part``
    opens a file by its path, ``open`` by its name.
    """

    identity: FileIdentity | None = None
    size = 0
    distant = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = self.file = os.fspath(path)
        self.names = tuple(sorted(_names(self.path)))
        self._open: dict[str, Source] = {}
        self._read = 0

    @property
    def bytes_read(self) -> int:
        """Bytes read of all files so far; what was read twice counts twice."""
        return self._read + sum(source.bytes_read for source in self._open.values())

    def read(self, offset: int, length: int) -> bytes:
        """Nothing: a folder has no bytes. Raises TruncatedError where some are wanted."""
        if length:
            raise TruncatedError(f"{self.path} is a folder: it has no bytes of its own.", offset=offset)
        return b""

    def open(self, name: str) -> Source:
        """Return the file ``name``, which may be deeper (``a/b.pt``) but not outside the folder.

        It stays open until many others have been opened, or the folder is closed: do not keep it.
        Raises HostileError for a name that leads out of the folder, and UnreadableError for a file that is not there.
        """
        steps = name.replace("\\", "/").split("/")
        if os.path.isabs(name) or ".." in steps or "" in steps or "\0" in name or os.path.splitdrive(name)[0]:
            raise HostileError(f'{self.path}: the name "{name}" leads out of the folder, so it is not opened.')
        return self._opened(os.path.join(self.path, *steps))

    def below(self, name: str) -> FolderSource:
        """Return the folder ``name`` in it. Raises UnreadableError when it cannot be listed."""
        return FolderSource(os.path.join(self.path, name.rstrip("/")))

    def has(self, name: str) -> bool:
        """Return whether something in it is called so, be it a link to nothing."""
        return os.path.lexists(os.path.join(self.path, name))

    def part(self, file: str) -> Source:
        """Return where the bytes of an extent in ``file`` are read. Raises UnreadableError when it cannot be opened."""
        return self._opened(file)

    def close(self) -> None:
        """Close every file."""
        for name in list(self._open):
            self._forget(name)

    def _opened(self, path: str) -> Source:
        if path not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._forget(next(iter(self._open)))
            self._open[path] = FileSource(path)
        return self._open[path]

    def _forget(self, path: str) -> None:
        source = self._open.pop(path)
        self._read += source.bytes_read
        source.close()


def _names(path: str) -> list[str]:
    names = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                names.append(f"{entry.name}/" if entry.is_dir() else entry.name)
                if len(names) >= MOST_NAMES:
                    break
    except OSError as error:
        raise UnreadableError(f"{path} cannot be listed: {system_says(error)}") from error
    return names


class Overlay(FolderSource):
    """The folder at ``path``, which need not be there, with ``files`` (name → path) in it.

    ``names`` are those of its other files.
    """

    def __init__(self, path: str, files: Mapping[str, str], names: Iterable[str] = ()) -> None:
        self.path = self.file = path
        self.names = tuple(sorted({*names, *files}))
        self._files = files
        self._open: dict[str, Source] = {}
        self._read = 0

    def open(self, name: str) -> Source:
        """Return the file of this name, or what stands for it."""
        return self._opened(self._files[name]) if name in self._files else super().open(name)


class AsFile(io.RawIOBase):
    """A source from its beginning to its end, for libraries that want a file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes, as many as there is room for."""
        view = memoryview(buffer).cast("B")
        length = min(len(view), self._source.size - self._at)
        view[:length] = self._source.read(self._at, length)
        self._at += length
        return length
