"""Lists folders on other machines, and opens their files as those of a local folder are."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ckptdoctor.checkpoint import FolderSource, Source
from ckptdoctor.errors import HostileError, UnreadableError
from ckptdoctor.remote.addresses import shown
from ckptdoctor.remote.entry import Entry, entry
from ckptdoctor.remote.listed import Listing, as_listed, folder_listed, seconds_of

# a file of torch.distributed.checkpoint has a header for each tensor, and each may be a request
_MOST_REQUESTS = 5_000


# what file systems call the time of an object, and the name of its bytes
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")
_ETAGS = ("ETag", "etag", "md5Hash", "content_md5")


def list_folder(address: str) -> list[Entry] | None:
    """Return what is directly in the folder at an address, such as ``s3://bucket/run``; None where it is a file.

    Raises UnreadableError, with what to do, where it cannot be listed.
    """
    known = folder_listed(address)
    if known is not None:
        return known
    path = shown(address)
    if address.partition("://")[0].lower() in ("http", "https", "hf"):
        raise UnreadableError(f"{path} cannot be listed as a folder. Download it, or name one of its files.")
    from ckptdoctor.remote.filesystems import FilesystemFolder

    folder = address.rstrip("/")
    found = FilesystemFolder(folder, path).listing()
    own = folder.rpartition("/")[2]
    return None if found is None else [each for info in found if (each := _entry(folder, own, info)) is not None]


def _entry(above: str, own: str, info: dict[str, Any]) -> Entry | None:
    """Return what fsspec says of one name in a folder; None for the folder itself, which S3 may list with no bytes."""
    name = str(info.get("name", "")).rstrip("/").rpartition("/")[2]
    size, folder = info.get("size"), info.get("type") == "directory"
    if not name or (not folder and not size and name == own):
        return None
    modified, etag = 0.0, ""
    for each in _TIMES:
        found = _seconds(info[each]) if each in info else None
        if found is not None:
            modified = found
            break
    for each in _ETAGS:
        if said := info.get(each):
            etag = str(said).strip('"')
            break
    return entry(name, f"{above}/{name}", folder, size if isinstance(size, int) else 0, modified, None, False, etag)


def _seconds(value: object) -> float | None:
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, datetime):
        return value.timestamp()
    return seconds_of(value) if isinstance(value, str) else None


class RemoteFolder(FolderSource):
    """The files below a folder on another machine. Raises UnreadableError where it cannot be listed."""

    distant = True

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")
        self.path = self.file = shown(self._address)
        found = self._listed(address)
        self.names = tuple(sorted([f"{each.name}/" if each.folder else each.name for each in found]))
        self._listing = Listing(self._address, [each for each in found if not each.folder])
        self._open: dict[str, Source] = {}
        self._read = 0

    def open(self, name: str) -> Source:
        """Return the file ``name``. Raises HostileError for a name that leads out, UnreadableError where none is."""
        if any(step in ("", ".", "..") for step in name.replace("\\", "/").split("/")):
            raise HostileError(f'{self.path}: the name "{name}" leads out of the folder, so it is not opened.')
        return self._opened(f"{self.path}/{name}")

    def below(self, name: str) -> FolderSource:
        """Return the folder ``name`` in it. Raises UnreadableError."""
        return RemoteFolder(f"{self._address}/{name.strip('/')}")

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name directly in it."""
        return name in self.names

    def _opened(self, path: str) -> Source:
        if path not in self._open:
            from ckptdoctor.remote import open_remote

            address = self._address + path[len(self.path) :]
            with as_listed(self._listing):  # nobody asks for a size again
                self._open[path] = open_remote(address, most_requests=_MOST_REQUESTS)
        return self._open[path]

    @staticmethod
    def _listed(address: str) -> list[Entry]:
        found = list_folder(address)
        if found is None:
            raise UnreadableError(f"{shown(address)} is a file, not a folder: leave out the slash behind it.")
        return found
