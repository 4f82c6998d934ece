"""The files that ranges are copied from: nearly always one, and several where a checkpoint is in several files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

from ckptdoctor.checkpoint import FileIdentity
from ckptdoctor.errors import WriteError
from ckptdoctor.wording import system_says
from ckptdoctor.writing.system import BINARY

# files kept open at once beside the first; opening one again costs little
_MOST_OPEN = 64


class Originals:
    """The file that a recipe names as its source, and others by their paths, opened when bytes of them are wanted.

    Each must stay what it was when it was first opened.
    """

    def __init__(self, path: str, known: FileIdentity | None = None) -> None:
        self.path = path
        self.first = _open(path)
        self._open: dict[str, int] = {}
        self._known: dict[str, FileIdentity] = {} if known is None else {path: known}

    def fd(self, file: str | None) -> int:
        """The open file at this path; None is the source of the recipe."""
        if file is None or file == self.path:
            return self.first
        if file not in self._open:
            if len(self._open) >= _MOST_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            self._open[file] = _open(file)
            now = _identity(os.fstat(self._open[file]))
            if self._known.setdefault(file, now) != now:
                raise _changed(file)
        return self._open[file]

    def require_unchanged(self) -> None:
        """Raises WriteError when one of the files is not what it was any more."""
        now = _identity(os.fstat(self.first))
        if self._known.setdefault(self.path, now) != now:
            raise _changed(self.path)
        for path, known in self._known.items():
            if path != self.path and _identity(os.stat(path)) != known:
                raise _changed(path)

    def close(self) -> None:
        """Give all files back."""
        while self._open:
            os.close(self._open.popitem()[1])
        os.close(self.first)


@contextmanager
def originals(path: str, known: FileIdentity | None = None) -> Iterator[Originals]:
    """The originals of a recipe with this source, which must be what ``known`` says."""
    with closing(Originals(path, known)) as files:
        files.require_unchanged()
        yield files


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | BINARY)
    except OSError as error:
        raise WriteError(f"The original {path} cannot be opened: {system_says(error)}") from error


def _identity(status: os.stat_result) -> FileIdentity:
    return FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _changed(path: str) -> WriteError:
    return WriteError(f"{path} changed while it was being repaired; nothing was written. Repair it again.")
