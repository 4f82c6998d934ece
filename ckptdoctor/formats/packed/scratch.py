"""The temporary folder of this process, in which what was packed lies unpacked until the process ends.

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

_PREFIX = "ckptdoctor-unpacked-"
_LOCK = ".lock"

Key = tuple[object, ...]
Places = tuple[tuple[int, int], ...]


class _Scratch:
    """The folder, once there is one, and what lies in it by what it was unpacked from."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.files: dict[Key, str] = {}
        self.holes: dict[str, Places] = {}
        self._lock = -1
        self._owner = 0

    def path(self) -> str:
        """The folder, made when it is first needed."""
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
    """The file that was unpacked from this already; None where it was not, or is gone."""
    path = _SCRATCH.files.get(key) if _SCRATCH.folder is not None else None
    return path if path is not None and os.path.exists(path) else None


def holes(path: str) -> Places:
    """The parts of an unpacked file that are not in it: where each begins and ends."""
    return _SCRATCH.holes.get(path, ())


def lacks(path: str, holes: Places) -> None:
    """Remember that these are the parts that are not in the file."""
    _SCRATCH.holes[path] = holes


@contextlib.contextmanager
def new_file(key: Key) -> Iterator[tuple[str, int]]:
    """A new file to write, which is kept for ``key`` unless this ends with an error. Ctrl-C removes all."""
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
    """Where files are unpacked."""
    return _SCRATCH.path()


def remove() -> None:
    """Remove the folder with everything in it."""
    _SCRATCH.remove()


def _can_lock() -> bool:
    """Whether the system has locks that end with their process. Windows has others, and removes no open files."""
    return find_spec("fcntl") is not None


def _locked(handle: int) -> bool:
    """Whether the lock could be had, which the system lets go when the process ends."""
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
