"""Keeps files and folders that are still being written, and removes those whose writer was killed.

Whose they are is told by a lock, which the system takes from a process however it ends: what can be locked belongs to
nobody any more, and the next writer in the same folder removes it. Neither the name nor the age of a file is enough:
where the system or the file system has no such locks, nothing is ever removed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from ckptdoctor.checkpoint import process
from ckptdoctor.errors import WriteError
from ckptdoctor.regex import regex
from ckptdoctor.writing.system import BINARY, LOCKS, lock
from ckptdoctor.writing.target import MARK, Target, temporary_name

_NAME = regex(rf"\..+\.[0-9a-f]{{12}}\.{MARK}(\.[^.]*)?", re.DOTALL)
_TRIED = 10  # names for one file: before it is locked, another process may take it for a leftover
_PATIENCE = 0.2  # seconds

_ours: dict[str, bool] = {}  # what this process has not finished, and whether it is a folder
_naming = Lock()


@contextmanager
def temporary_file(target: Target, mode: int = 0o600) -> Iterator[tuple[str, int]]:
    """Yield a new file next to the target: its path, and a descriptor that the caller closes.

    It is removed afterwards, unless it was moved or has another name, too. Raises OSError, and WriteError where other
    processes keep removing it.
    """
    path, holder = _made(target, mode)
    try:
        if LOCKS:
            yield path, os.dup(holder)
        else:  # Windows gives no open file another name: it must be open once only
            yield path, holder
    finally:
        _forget(path, holder if LOCKS else -1)


@contextmanager
def temporary_folder(target: Target) -> Iterator[str]:
    """Do the same for a folder, in which only files are made."""
    path, holder = _made(target, None)
    try:
        yield path
    finally:
        _forget(path, holder)


def _made(target: Target, mode: int | None) -> tuple[str, int]:
    """Return a new file, or a folder where there is no ``mode``; and the descriptor that holds its lock."""
    for _ in range(_TRIED):
        path = temporary_name(target)
        with _naming:
            process.before_leaving(abandon)
            _ours[path] = mode is None
            try:
                holder = _new_folder(path) if mode is None else _new_file(path, mode)
            except BaseException:
                del _ours[path]
                raise
        if not LOCKS:
            return path, holder
        try:
            if lock(holder) is not False and _is_there(path, holder):
                return path, holder
        except BaseException:
            _forget(path, holder)
            raise
        _forget(path, holder)
    raise WriteError(f"{target.path} could not be written: something keeps removing its unfinished file.")


def _new_file(path: str, mode: int) -> int:
    # O_EXCL: never write into a file, or through a link, that someone else has put there
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | BINARY, mode)


def _new_folder(path: str) -> int:
    os.mkdir(path)
    if not LOCKS:
        return -1
    try:
        return os.open(path, os.O_RDONLY)
    except BaseException:
        os.rmdir(path)
        raise


def _is_there(path: str, holder: int) -> bool:
    """Return whether what is open still has its name."""
    try:
        return os.path.samestat(os.fstat(holder), os.lstat(path))
    except FileNotFoundError:
        return False


def _forget(path: str, holder: int) -> None:
    with suppress(FileNotFoundError):  # it was moved
        _remove(path, _ours[path])
    del _ours[path]
    if holder >= 0:
        os.close(holder)


def _remove(path: str, folder: bool) -> None:
    """Remove an unfinished file, or a folder with the files in it: there are no folders in those that we make."""
    if not folder:
        os.unlink(path)
        return
    for each in os.listdir(path):
        os.unlink(os.path.join(path, each))
    os.rmdir(path)


def abandon() -> None:
    """Remove what is unfinished: the process is about to end, without waiting for its threads."""
    if process.is_ours():  # nothing new is begun from here on
        _naming.acquire(timeout=_PATIENCE)
    for path, folder in tuple(_ours.items()):
        with suppress(OSError):
            _remove(path, folder)


def leftovers(folder: str) -> Iterator[str]:
    """Yield the unfinished files and folders in ``folder`` that no process works on."""
    for path in _named_so(folder):
        holder = _taken(path)
        if holder is not None:
            os.close(holder)
            yield path


def sweep(folder: str) -> None:
    """Remove those of this user."""
    for path in _named_so(folder):
        holder = _taken(path)
        if holder is not None:
            with suppress(OSError):
                status = os.fstat(holder)
                if status.st_uid == os.geteuid():
                    _remove(path, stat.S_ISDIR(status.st_mode))
            os.close(holder)


def size_of(path: str) -> int:
    """Return the bytes of a leftover, of all files in it where it is a folder."""
    with suppress(OSError):
        if not os.path.isdir(path):
            return os.lstat(path).st_size
        with os.scandir(path) as entries:
            return sum([entry.stat(follow_symlinks=False).st_size for entry in entries])
    return 0


def _named_so(folder: str) -> list[str]:
    if not LOCKS:
        return []
    try:
        with os.scandir(folder) as entries:
            return sorted([entry.path for entry in entries if _NAME.fullmatch(entry.name)])
    except OSError:  # it is not ours to list
        return []


def _taken(path: str) -> int | None:
    """Return a descriptor that holds the lock of the file at ``path``.

    It is None where another process has it, or that cannot be determined.
    """
    try:
        kind = os.lstat(path).st_mode
        if not (stat.S_ISREG(kind) or (stat.S_ISDIR(kind) and _holds_files(path))):
            return None
        holder = _opened(path, kind)
    except OSError:  # gone meanwhile, or not ours
        return None
    with suppress(OSError):
        if lock(holder) and _is_there(path, holder):
            return holder
    os.close(holder)
    return None


def _holds_files(folder: str) -> bool:
    """Return whether there is nothing but files in it."""
    with os.scandir(folder) as entries:
        return all(entry.is_file(follow_symlinks=False) for entry in entries)


def _opened(path: str, kind: int) -> int:
    """Open for writing where that can be: network file systems lock nothing else."""
    if stat.S_ISREG(kind):
        with suppress(PermissionError):
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
