"""The bytes of local files are read into memory that is there already."""

from __future__ import annotations

from typing import BinaryIO

from ckptdoctor.checkpoint import Source
from ckptdoctor.checkpoint.source import pace
from ckptdoctor.errors import DamagedError, UnreadableError
from ckptdoctor.wording import system_says

_MOST_OPEN = 32


class Files:
    """The bytes of one source for one thread, into buffers that are there already."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._open: dict[str, BinaryIO] = {}

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the files back."""
        for file in self._open.values():
            file.close()

    def fill(self, path: str, offset: int, view: memoryview) -> None:
        """Fill ``view`` with the bytes at ``offset`` of a file. Raises DamagedError when it ends before."""
        if self._source.distant:
            view[:] = self._source.part(path).read(offset, len(view))
            return
        pace(len(view))
        file = self._open.get(path) or self._opened(path)
        file.seek(offset)
        done = 0
        while done < len(view):
            step = file.readinto(view[done:])  # type: ignore[attr-defined]  # a raw file has it
            if not step:
                raise DamagedError(f"{path} ended at byte {offset + done} while it was read.", offset=offset + done)
            done += step

    def _opened(self, path: str) -> BinaryIO:
        while len(self._open) >= _MOST_OPEN:
            self._open.pop(next(iter(self._open))).close()
        try:
            self._open[path] = open(path, "rb", buffering=0)  # noqa: SIM115  # closed by whoever closes this
        except OSError as error:
            raise UnreadableError(f"{path} cannot be opened: {system_says(error)}") from error
        return self._open[path]
