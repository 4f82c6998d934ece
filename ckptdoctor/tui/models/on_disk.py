"""Tells whether what is on the screen is still what is on the disk."""

from __future__ import annotations

import os
from contextlib import suppress

from ckptdoctor.remote import addresses

# of each file its place in the folder, device, inode, size and modification time
DiskState = tuple[tuple[str, int, int, int, int], ...]


def state_of(path: str) -> DiskState | None:
    """Return what tells a file, or the files of a folder, from others that take their place later.

    None where nothing can tell: on other machines, inside an archive, and where nothing is there.
    """
    if addresses.is_address(path):
        return None
    if not os.path.isdir(path):
        with suppress(OSError):  # there is no such file (any more): whoever reads it says so
            return (_state(path, ""),)
        return None
    found = []
    for folder, _, names in os.walk(path):
        for name in names:
            file = os.path.join(folder, name)
            with suppress(OSError):  # it has gone since the folder was listed, and so is not a part of it
                found.append(_state(file, os.path.relpath(file, path)))
    return tuple(sorted(found))


def is_replaced(path: str, before: DiskState | None) -> bool:
    """Return whether there are other contents at ``path`` than ``before``."""
    now = state_of(path) if before is not None else None
    return now is not None and now != before


def _state(file: str, name: str) -> tuple[str, int, int, int, int]:
    status = os.stat(file)
    return name, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
