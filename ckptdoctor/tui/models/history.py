"""Remembers where somebody was, and from one time to the next which files were opened and what has a bookmark.

A file of JSON in the folder for such things (XDG_STATE_HOME) holds paths, names of tensors and the time, and nothing of
what the files contain; ``CKPTDOCTOR_HISTORY=0`` keeps none. Nobody is kept from looking at a checkpoint because this
cannot be read or written: then nothing is remembered.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ckptdoctor.remote import addresses
from ckptdoctor.tui.models.tree import TreeItem

_RECENT = 20  # files that are remembered
_BOOKMARKS = 100  # of one file
_FILE = "browser.json"


@dataclass(frozen=True, slots=True)
class History:
    """The files that were opened, the last one first, and the bookmarks in each: key paths as they are shown."""

    recent: tuple[str, ...] = ()
    bookmarks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Trail:
    """What a cursor was on before it was taken elsewhere, and the place among that to which somebody has come back."""

    def __init__(self) -> None:
        self._been: list[TreeItem] = []
        self._at = 0  # behind the last there is what nobody has come back from

    def leave(self, item: TreeItem | None) -> None:
        """Remember ``item``, which the cursor is about to leave, and forget what was ahead."""
        del self._been[self._at :]
        if item is not None and self._been[-1:] != [item]:
            self._been.append(item)
        self._at = len(self._been)

    def wander(self, by: int, item: TreeItem | None) -> TreeItem | None:
        """Return the item so many places back or forward from ``item``, where the cursor is; None past the end."""
        to = self._at + by
        if item is not None and by < 0 and self._at == len(self._been) and to >= 0:
            self._been.append(item)
        if not 0 <= to < len(self._been):
            return None
        self._at = to
        return self._been[to]


def recent() -> list[str]:
    """Return the files that were opened last and are still there, the last one first."""
    return [each for each in _read().recent if os.path.exists(each)]


def remember(path: str) -> None:
    """Put a file that was opened in front of the others."""
    known, place = _read(), _place(path)
    _write(replace(known, recent=(place, *[each for each in known.recent if each != place])[:_RECENT]))


def bookmarks(path: str) -> list[str]:
    """Return the key paths in a file that have a bookmark, as they are shown."""
    return list(_read().bookmarks.get(_place(path), ()))


def keep_bookmarks(path: str, names: Sequence[str]) -> bool:
    """Remember these bookmarks of a file, and no others; False where they cannot be kept although they should be."""
    known = _read()
    marked = {**known.bookmarks, _place(path): tuple(names[:_BOOKMARKS])}
    return _write(replace(known, bookmarks={each: kept for each, kept in marked.items() if kept}))


def _place(path: str) -> str:
    return path if addresses.is_address(path) else os.path.abspath(path)


def _file() -> Path | None:
    """Return the file that recent files and bookmarks are kept in; None where nobody wants them kept."""
    if os.environ.get("CKPTDOCTOR_HISTORY") == "0":
        return None
    named = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    home = Path(named) if named else Path(os.path.expanduser("~"), ".local", "state")
    return home / "ckptdoctor" / _FILE


def _read() -> History:
    file = _file()
    try:
        known = json.loads(file.read_text(encoding="utf-8")) if file is not None else {}
        marked = {str(each): tuple(map(str, names)) for each, names in dict(known.get("bookmarks", {})).items()}
        return History(tuple(map(str, known.get("recent", ()))), marked)
    except (OSError, ValueError, TypeError, AttributeError):  # none yet, or somebody has written something else there
        return History()


def _write(history: History) -> bool:
    """Write it down; False where there is nowhere to. A home that cannot be written to keeps nobody from looking."""
    file = _file()
    if file is None:
        return True
    text = json.dumps({"recent": history.recent, "bookmarks": dict(history.bookmarks)}, indent=1)
    with suppress(OSError):  # whoever asked for it to be kept says so
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f"{_FILE}.{os.getpid()}")  # several browsers may be open
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(file)
        return True
    return False
