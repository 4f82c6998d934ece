"""A folder as it will be, while its new files still have other names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ckptdoctor.checkpoint import FileSource, FolderSource


class Overlay(FolderSource):
    """The folder at ``path``, which need not be there, with ``files`` (name → path) in it.

    ``names`` are those of its other files.
    """

    def __init__(self, path: str, files: Mapping[str, str], names: Iterable[str] = ()) -> None:
        self.path = self.file = path
        self.names = tuple(sorted({*names, *files}))
        self._files = files
        self._open: dict[str, FileSource] = {}
        self._read = 0

    def open(self, name: str) -> FileSource:
        """The file of this name, or what stands for it."""
        return self._opened(self._files[name]) if name in self._files else super().open(name)
