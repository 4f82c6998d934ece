"""A checkpoint in several files: a folder, whose files are opened when their bytes are wanted."""

from __future__ import annotations

import os

from ckptdoctor.checkpoint.checkpoint import FileIdentity
from ckptdoctor.checkpoint.source import FileSource, Source
from ckptdoctor.errors import HostileError, TruncatedError, UnreadableError
from ckptdoctor.wording import system_says

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
        self._open: dict[str, FileSource] = {}
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

    def open(self, name: str) -> FileSource:
        """The file ``name``, which may lie deeper (``a/b.pt``) but not outside the folder.

        It stays open until many others were opened, or the folder is closed: do not keep it.
        Raises HostileError for a name that leads out of the folder, and UnreadableError for a file that is not there.
        """
        steps = name.replace("\\", "/").split("/")
        if os.path.isabs(name) or ".." in steps or "" in steps or "\0" in name or os.path.splitdrive(name)[0]:
            raise HostileError(f"{self.path}: the name “{name}” leads out of the folder, so it is not opened.")
        return self._opened(os.path.join(self.path, *steps))

    def part(self, file: str) -> Source:
        """Where the bytes of an extent in ``file`` are read. Raises UnreadableError when it cannot be opened."""
        return self._opened(file)

    def close(self) -> None:
        """Close every file."""
        for name in list(self._open):
            self._forget(name)

    def _opened(self, path: str) -> FileSource:
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
