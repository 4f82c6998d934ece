"""Answers a path that is not there with the one that was probably meant."""

from __future__ import annotations

import os
from itertools import islice

from ckptdoctor.errors import MissingFileError
from ckptdoctor.wording import nearest

_MOST = 10_000  # names of a folder that are compared
_ALIKE = 0.7  # less is the suffix alone
_NO_GLOB = str.maketrans("", "", "*?[]")


def missing(path: str) -> MissingFileError:
    """Return the error for a path, or a pattern, that nothing is called; it offers what is there and most like it."""
    if path != path.translate(_NO_GLOB):
        return MissingFileError(f"No file matches {path}.{offer(path)}", filename=path)
    return MissingFileError(f"{path} cannot be opened: No such file or directory.{offer(path)}", filename=path)


def offer(path: str) -> str:
    """Return `` Did you mean "runs/best.pt"?``, with a blank before it.

    It is "" where nothing that is there is like the path.
    """
    meant = _meant(path)
    return f' Did you mean "{meant}"?' if meant and meant != path else ""


def _meant(path: str) -> str:
    """Return the path with every part that is not there replaced by the one most like it, or "" where none is."""
    drive, rest = os.path.splitdrive(path.translate(_NO_GLOB).replace(os.sep, "/"))
    found = f"{drive}/" if rest.startswith("/") else drive
    for part in filter(None, rest.split("/")):
        there = part if os.path.lexists(os.path.join(found, part)) else nearest(part, _names(found), _ALIKE)
        if not there:
            return ""
        found = os.path.join(found, there)
    return found


def _names(folder: str) -> list[str]:
    try:
        with os.scandir(folder or ".") as entries:
            return [entry.name for entry in islice(entries, _MOST)]
    except OSError:  # not a folder, or not ours to read
        return []
