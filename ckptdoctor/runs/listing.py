"""Lists folders and reads small files of a run, on this machine or another."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from typing import Any

from ckptdoctor.checkpoint.missing import missing
from ckptdoctor.errors import CkptDoctorError, UnreadableError
from ckptdoctor.remote import open_remote
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.remote.entry import Entry, entry
from ckptdoctor.wording import system_says

# bytes of a small file that are read at most: a trainer_state.json of 10^6 logged steps is shorter
_LONGEST = 256 << 20


def entries(path: str) -> list[Entry]:
    """Return what is directly in a folder, links followed. Raises UnreadableError where it cannot be listed."""
    if is_address(path):
        listed = entries_unless_file(path)
        if listed is None:
            raise UnreadableError(f"{path} is a file, not a folder.")
        return listed
    found = []
    try:
        with os.scandir(path) as scanned:
            for each in scanned:
                try:
                    status = each.stat()
                except OSError as error:
                    if each.is_symlink() or isinstance(error, FileNotFoundError):  # to nothing, or removed meanwhile
                        continue
                    raise  # names can be read, and nothing about them
                size, modified = status.st_size, status.st_mtime
                found.append(entry(each.name, each.path, each.is_dir(), size, modified, status, each.is_symlink()))
    except FileNotFoundError as error:
        raise missing(path) from error
    except OSError as error:
        raise UnreadableError(f"{path} cannot be listed: {system_says(error)}") from error
    return found


def entries_unless_file(path: str) -> list[Entry] | None:
    """Return the same, None for a file: of an address one request tells either."""
    if not is_address(path):
        return None if os.path.isfile(path) else entries(path)
    from ckptdoctor.remote.folders import list_folder

    return list_folder(path)


def is_file(path: str) -> bool:
    """Return whether it is a file. Raises UnreadableError for an address that cannot be asked."""
    return entries_unless_file(path) is None if is_address(path) else os.path.isfile(path)


def below(path: str, name: str) -> str:
    """Return the path of what is called ``name`` in a folder."""
    return f"{path.rstrip('/')}/{name}" if is_address(path) else os.path.join(path, name)


def read_small(path: str) -> bytes:
    """Return the bytes of a small file. Raises UnreadableError where it cannot be read, or is not small."""
    if is_address(path):
        with closing(open_remote(path)) as source:
            if source.size > _LONGEST:
                raise UnreadableError(f"{path} is too long: {source.size:,} bytes.")
            return source.read(0, source.size)
    try:
        with open(path, "rb") as file:
            data = file.read(_LONGEST + 1)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be opened: {system_says(error)}") from error
    if len(data) > _LONGEST:
        raise UnreadableError(f"{path} is too long.")
    return data


_known: ContextVar[dict[str, dict[str, Any] | None] | None] = ContextVar("known", default=None)


@contextmanager
def read_once() -> Iterator[dict[str, dict[str, Any] | None]]:
    """Read each JSON file once meanwhile; what was read is given, by its path."""
    known: dict[str, dict[str, Any] | None] = {}
    before = _known.set(known)
    try:
        yield known
    finally:
        _known.reset(before)


def read_json(path: str) -> dict[str, Any] | None:
    """Return the object in a small JSON file; None where it cannot be read, or is not one."""
    known = _known.get()
    if known is not None and path in known:
        return known[path]
    try:
        found = json.loads(read_small(path))
    except (CkptDoctorError, ValueError, RecursionError):
        found = None
    said = found if isinstance(found, dict) else None
    if known is not None:
        known[path] = said
    return said
