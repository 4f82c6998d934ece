"""Reads files that fsspec reaches: S3, Google Cloud Storage, and whatever else it has a file system for."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ckptdoctor.errors import CkptDoctorError, MissingFileError, UnreadableError, UsageError
from ckptdoctor.remote.connected import connected
from ckptdoctor.remote.listed import file_listed, is_gone, note_failure
from ckptdoctor.remote.published import in_listing
from ckptdoctor.wording import plural

_DELAYS = (0.5, 1.0)
_MOST_NAMED = 3
_WEIGHTS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")

# some of its file systems want another package, and these are in the extra
_EXTRA = "pip install 'ckptdoctor[remote]'"
_IN_EXTRA = ("s3://", "s3a://", "gs://", "gcs://")

# what is said of it by those that give no reason
_DENIED = ("Access Denied", "AccessDenied", "Forbidden", "PermissionError", "Permission denied")

Answer = TypeVar("Answer")


class _Place:
    """A file or folder of one of fsspec's file systems. ``path`` is its address as it may be shown."""

    def __init__(self, address: str, path: str) -> None:
        self._path = path
        self._address = address
        self._system, self._file = self._connected(address)

    def _first(self, ask: Callable[[], Answer]) -> Answer:
        """Return the first answer: what is public needs no credentials."""
        try:
            return self._asked(ask)
        except _NoCredentialsError:  # a public file needs no credentials
            self._system, self._file = self._connected(self._address, anon=True)
            return self._asked(ask)

    def _connected(self, address: str, **options: Any) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise UsageError(f"{self._path} needs fsspec: install it ({_EXTRA}).") from error
        try:
            system, file = url_to_fs(address, **options) if options else connected(address)
        except ImportError as error:
            how = _EXTRA if self._path.startswith(_IN_EXTRA) else " ".join(str(error).split())[:200]
            raise UsageError(f"{self._path} needs another package: install it ({how}).") from error
        except ValueError as error:
            scheme = self._path.partition("://")[0]
            raise UnreadableError(f'{self._path}: ckptdoctor cannot read "{scheme}://" addresses.') from error
        return system, file

    def _missing(self) -> MissingFileError:
        return MissingFileError(f"{self._path} does not exist. Check the address.", filename=self._path)

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        """Return the answer, asked for again where the connection broke.

        What the libraries raise becomes a sentence.
        """
        for delay in (*_DELAYS, None):
            try:
                return ask()
            except CkptDoctorError:
                raise
            except FileNotFoundError as error:
                raise self._missing() from error
            except PermissionError as error:
                said = _why(error)
                more = f" ({said})" if said not in _DENIED else ""
                raise self._failed(
                    f"{self._path}: access denied{more}. Its server requires credentials, or different ones."
                ) from error
            except Exception as error:  # each file system has errors of its own, with no common base
                if type(error).__name__ == "NoCredentialsError":
                    raise _NoCredentialsError from error
                if delay is None or not _passes(error):
                    raise self._failed(f"{self._path} cannot be read: {_why(error)}.{_hint(error)}") from error
            time.sleep(delay)
        raise AssertionError("the last attempt returns or raises")

    def _failed(self, why: str) -> UnreadableError:
        note_failure(why)
        return UnreadableError(why)


class FilesystemFile(_Place):
    """A file of one of fsspec's file systems. Raises UnreadableError where it cannot be reached."""

    head = b""

    def __init__(self, address: str, path: str) -> None:
        super().__init__(address, path)
        listed = file_listed(address)
        if listed is not None:
            self.size = listed.size
            self.published = tuple(in_listing({"ETag": listed.etag}))
            return
        if is_gone(address):
            raise self._missing()
        info = self._first(lambda: self._system.info(self._file))
        if info.get("type") == "directory":
            raise UnreadableError(f"{path} is a folder, not a file: name one of its files{self._some_files()}.")
        size = info.get("size")
        if not isinstance(size, int):
            raise UnreadableError(f"{path}: its server does not report its size. Download it first.")
        self.size = size
        self.published = tuple(dict.fromkeys(in_listing(info)))

    def fetch(self, start: int, stop: int) -> bytes:
        """Return exactly these bytes. Raises UnreadableError."""
        data: bytes = self._asked(lambda: self._system.cat_file(self._file, start=start, end=stop))
        if len(data) != stop - start:
            raise UnreadableError(
                f"{self._path}: {plural(stop - start, 'byte was', 'bytes were')} requested but {len(data):,} "
                "arrived: it changed while it was read, or its server does not serve parts of files."
            )
        return data

    def close(self) -> None:
        """Close nothing: fsspec keeps its connections for the next file."""

    def _some_files(self) -> str:
        """Return the end of a sentence: the first files in a folder that look like checkpoints."""
        files = [str(each) for each in self._asked(lambda: self._system.ls(self._file, detail=False))]
        named = [self._system.unstrip_protocol(each) for each in sorted(files) if each.endswith(_WEIGHTS)][:_MOST_NAMED]
        return f", such as {' or '.join(map(str, named))}" if named else ""


class FilesystemFolder(_Place):
    """A folder of one of fsspec's file systems."""

    def listing(self) -> list[dict[str, Any]] | None:
        """Return what its file system says of each name in it, as it is now; None where it is a file.

        Raises UnreadableError where it cannot be listed.
        """
        self._system.invalidate_cache()  # a training writes here meanwhile
        found: list[dict[str, Any]] = self._first(lambda: self._system.ls(self._file, detail=True))
        own = self._file.strip("/")
        alone = len(found) == 1 and found[0].get("type") != "directory" and bool(found[0].get("size"))
        return None if alone and str(found[0].get("name")).strip("/") == own else found


def _passes(error: Exception) -> bool:
    """Return whether asking again may help. The timeouts of asyncio have a class of their own on Python 3.10."""
    import asyncio

    return isinstance(error, (TimeoutError, asyncio.TimeoutError, ConnectionError))


def _why(error: Exception) -> str:
    """Return a library's message without the addresses in it: the one that was asked for is put in front of it."""
    said = re.sub(r"""(?:\s*:)?\s*["'<(]*\b\w+://\S+""", "", " ".join(str(error).split()))[:200]
    return re.sub(r"^\[Errno \d+\] ", "", said).strip(" .:") or type(error).__name__


def _hint(error: Exception) -> str:
    """Return what to do, where S3 has said less than it knows: a HEAD has no room for the reason."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EINVAL and "Bad Request" in str(error):
        return " S3 says so where credentials have expired: renew them."
    return " Its server is too busy: try again later, with fewer processes." if number == errno.EBUSY else ""


class _NoCredentialsError(Exception):
    """There are no credentials, and none may be needed."""
