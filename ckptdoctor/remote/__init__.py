"""Opens files on other machines: headers are read in a few requests for parts, and nothing is downloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.remote.addresses import shown

if TYPE_CHECKING:
    from ckptdoctor.remote.folders import RemoteEntry
    from ckptdoctor.remote.source import RemoteFile, RemoteSource


def open_remote(address: str) -> RemoteSource:
    """Return the file at an address such as ``https://host/model.pt``.

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
    return RemoteSource(path, file)


def list_folder(address: str) -> list[RemoteEntry]:
    """Return what is directly in the folder at an address that fsspec can list, such as ``s3://bucket/run``.

    Raises UnreadableError, with what to do, where it cannot be listed.
    """
    from ckptdoctor.errors import UnreadableError

    path = shown(address)
    if address.partition("://")[0].lower() in ("http", "https", "hf"):
        raise UnreadableError(f"{path} cannot be listed as a folder. Download it, or name one of its files.")
    from ckptdoctor.remote.filesystems import FilesystemFolder

    return FilesystemFolder(address, path).entries()
