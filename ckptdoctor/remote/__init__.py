"""Opens files on other machines: headers are read in a few requests for parts, and nothing is downloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.remote.addresses import shown

if TYPE_CHECKING:
    from ckptdoctor.remote.source import RemoteFile, RemoteSource


def open_remote(address: str, *, most_requests: int | None = None) -> RemoteSource:
    """Return the file at an address such as ``https://host/model.pt``; None: as many requests as one file may take.

    Raises UnreadableError, with what to do, where it cannot be reached or its server does not serve parts of files.
    """
    from ckptdoctor.remote.source import RemoteSource

    path = shown(address)
    scheme = address.partition("://")[0].lower()
    file: RemoteFile
    if scheme in ("http", "https"):
        from ckptdoctor.remote.http import HttpFile

        file = HttpFile(address, path)
    elif scheme == "hf":
        from ckptdoctor.remote import hub

        file = hub.open_file(address, path)
    else:
        from ckptdoctor.remote.filesystems import FilesystemFile

        file = FilesystemFile(address, path)
    return RemoteSource(path, file, most_requests)
