"""Keeps the temporary folder of this process, in which files are unpacked, until the process ends.

Its lock is held as long as the process lives, however it ends: the next one that needs such a folder removes those
whose lock is free.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec

from ckptdoctor.checkpoint.progress import Work, phase
from ckptdoctor.errors import RefusedError

_PREFIX = "ckptdoctor-unpacked-"
_LOCK = ".lock"

Key = tuple[object, ...]
Places = tuple[tuple[int, int], ...]


class _Scratch:
    """The folder, once there is one, and the files in it by what they were unpacked from."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.files: dict[Key, str] = {}
        self.holes: dict[str, Places] = {}
        self._lock = -1
        self._owner = 0

    def path(self) -> str:
        """Return the folder, made when it is first needed."""
        if self.folder is None or self._owner != os.getpid():  # a forked process has its own
            _sweep()
            self.files, self.holes = {}, {}
            self._owner = os.getpid()
            from ckptdoctor.writing.interrupts import before_the_end

            atexit.register(self.remove)  # before there is anything that an interrupt could leave behind
            before_the_end(self.remove)
            self.folder = os.path.join(tempfile.gettempdir(), f"{_PREFIX}{os.urandom(6).hex()}")
            os.mkdir(self.folder, 0o700)
            if _can_lock():
                self._hold_lock(os.path.join(self.folder, _LOCK))
        return self.folder

    def _hold_lock(self, lock: str) -> None:
        self._lock = os.open(f"{lock}.new", os.O_RDWR | os.O_CREAT, 0o600)
        _locked(self._lock)
        os.rename(f"{lock}.new", lock)  # others look at it only once it is locked

    def remove(self) -> None:
        """Remove everything; a process that was forked from the one that made it leaves it alone."""
        if self.folder is not None and self._owner == os.getpid():
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.close(self._lock)
            self.folder, self.files, self.holes, self._lock = None, {}, {}, -1


_SCRATCH = _Scratch()


def known(key: Key) -> str | None:
    """Return the file that was unpacked from this already, or None where it was not, or is gone."""
    path = _SCRATCH.files.get(key) if _SCRATCH.folder is not None else None
    return path if path is not None and os.path.exists(path) else None


def holes(path: str) -> Places:
    """Return the parts of an unpacked file that are not in it: where each begins and ends."""
    return _SCRATCH.holes.get(path, ())


def lacks(path: str, holes: Places) -> None:
    """Remember that these are the parts that are not in the file."""
    _SCRATCH.holes[path] = holes


@contextlib.contextmanager
def new_file(key: Key) -> Iterator[tuple[str, int]]:
    """Open a new file to write, which is kept for ``key`` unless this ends with an error. Ctrl-C removes all."""
    folder = _SCRATCH.path()
    handle, path = tempfile.mkstemp(dir=folder)
    try:
        try:
            yield path, handle
        finally:
            os.close(handle)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(path)
        if not isinstance(error, Exception):
            remove()
        raise
    _SCRATCH.files[key] = path


def folder() -> str:
    """Return where files are unpacked."""
    return _SCRATCH.path()


def remove() -> None:
    """Remove the folder with everything in it."""
    _SCRATCH.remove()


def _can_lock() -> bool:
    """Return whether the system has locks that end with their process.

    Windows has others, and removes no open files.
    """
    return find_spec("fcntl") is not None


def _locked(handle: int) -> bool:
    """Return whether the lock could be had, which the system lets go when the process ends."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sweep() -> None:
    """Remove the folders of processes that were killed, where locks tell which those are."""
    if not _can_lock():
        return
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                _remove_if_left(entry.path)


def _remove_if_left(folder: str) -> None:
    with contextlib.suppress(OSError):  # of another user, or gone meanwhile, or made in this very moment
        if os.stat(folder).st_uid != os.getuid():
            return
        handle = os.open(os.path.join(folder, _LOCK), os.O_RDWR)
        try:
            if _locked(handle):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


# ---- what is unpacked gets holes where there are only zeros, as far as the disk has room


# a tenth of what is free stays free
_SHARE = 0.9
_ZEROS = bytes(1 << 20)  # no piece of them is longer
_LOOK = 64 << 20  # so often the free space is looked at


def written(pieces: Iterator[bytes], handle: int) -> int:
    """Write all the pieces, and say how many bytes they are."""
    with phase("unpacking", 0) as work:
        writer = Writer(handle, work)
        for piece in pieces:
            writer.write(piece)
        writer.end()
    return writer.done


class Writer:
    """Writes a file from its beginning on: pieces of zeros alone become holes, which take no room on most disks.

    So does what is skipped; ``holes`` are where that was. Raises RefusedError where there is no room.
    """

    def __init__(self, handle: int, work: Work) -> None:
        self.done = 0
        self.holes: list[tuple[int, int]] = []
        self._handle = handle
        self._work = work
        self._room = int(shutil.disk_usage(folder()).free * _SHARE)
        self._taken = self._looked = 0

    def write(self, piece: bytes) -> None:
        """Write the next bytes. Raises RefusedError where the disk would be too full for others then."""
        hole = _ZEROS.startswith(piece)
        self._taken += 0 if hole else len(piece)
        if self._taken > self._room:
            raise RefusedError(
                f"Unpacking stopped after {self.done + len(piece):,} bytes, to leave some space on the disk "
                f"of {folder()}: unpack it yourself, or set TMPDIR to a folder with more space."
            )
        view = memoryview(b"" if hole else piece)
        with _refused():
            while view:
                view = view[os.write(self._handle, view) :]
        self._go_on(len(piece), hole)
        if self._taken - self._looked >= _LOOK:  # others write to the same disk
            free = shutil.disk_usage(folder()).free
            self._room = min(self._room, self._taken + int(free * _SHARE))
            self._looked = self._taken

    def skip(self, length: int) -> None:
        """Leave so many bytes out."""
        if not length:
            return
        begin, end = self.done, self.done + length
        if self.holes and self.holes[-1][1] == begin:
            begin = self.holes.pop()[0]
        self.holes.append((begin, end))
        self._go_on(length, True)

    def end(self) -> None:
        """Take note that nothing comes any more."""
        with _refused():
            os.ftruncate(self._handle, self.done)

    def _go_on(self, length: int, hole: bool) -> None:
        self.done += length
        if hole:
            with _refused():
                os.lseek(self._handle, self.done, os.SEEK_SET)
        self._work.reach(self.done)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RefusedError(
            f"Unpacking stopped in {folder()}: {error.strerror}. Unpack it yourself, or set TMPDIR to a "
            "folder with more space."
        ) from error
