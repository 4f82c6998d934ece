"""Answers from a listing that was just made: it says what there is, and how long it is, for no request at all.

Whoever lists a store and then examines what is in it says so by ``as_listed``. What a listing does not name is asked as
usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime

from ckptdoctor.regex import regex
from ckptdoctor.remote.entry import Entry

_FRACTION = regex(r"\.(\d+)")


def seconds_of(said: str) -> float | None:
    """Return the time that a store writes as ``2026-01-02T03:04:05.67Z``, in seconds; None for other texts.

    Python 3.10 reads fractions of three or six digits, and what is written in Go has no zeros at its end.
    """
    exact = _FRACTION.sub(lambda found: f".{found[1][:6]:0<6}", said.replace("Z", "+00:00"))
    try:
        return datetime.fromisoformat(exact).timestamp()
    except ValueError:
        return None


class Listing:
    """Files by their addresses, and what is in folders. ``used`` says whether anything was answered from it."""

    def __init__(self, folder: str = "", files: Iterable[Entry] = ()) -> None:
        """Know these files; those in or below ``folder`` are all that there are, where one is named."""
        self.files = {each.path: each for each in files}
        self.folders: dict[str, dict[str, Entry]] = {folder: {}} if folder else {}
        self.used = False
        for each in self.files.values():
            self._add(folder, each)

    def _add(self, folder: str, entry: Entry) -> None:
        while folder and entry.path.startswith(f"{folder}/"):
            above = entry.path[: -len(entry.name) - 1]
            self.folders.setdefault(above, {})[entry.name] = entry
            entry = Entry(above.rpartition("/")[2], above, True, 0, 0.0)

    def forget(self) -> None:
        """Have everything asked again."""
        self.files.clear()
        self.folders.clear()


_listing: ContextVar[Listing | None] = ContextVar("listing", default=None)
_failures: ContextVar[list[str] | None] = ContextVar("failures", default=None)


@contextmanager
def failures_noted() -> Iterator[list[str]]:
    """Give a list of what could not be asked meanwhile, and why: who only looks whether a file says more hides that."""
    found: list[str] = []
    before = _failures.set(found)
    try:
        yield found
    finally:
        _failures.reset(before)


def note_failure(why: str) -> None:
    """Note that a server did not answer, or refused to."""
    found = _failures.get()
    if found is not None:
        found.append(why)


@contextmanager
def as_listed(listing: Listing) -> Iterator[Listing]:
    """Answer from a listing meanwhile."""
    before = _listing.set(listing)
    try:
        yield listing
    finally:
        _listing.reset(before)


def file_listed(address: str) -> Entry | None:
    """Return what the listing says of a file, None where there is none, or none that names it."""
    listing = _listing.get()
    found = listing.files.get(address) if listing is not None else None
    if listing is not None and found is not None:
        listing.used = True
    return found


def is_gone(address: str) -> bool:
    """Return whether the listing of a folder names no such file or folder in it."""
    listing = _listing.get()
    folder, _, name = address.rpartition("/")
    gone = listing is not None and folder in listing.folders and name not in listing.folders[folder]
    if listing is not None and gone:
        listing.used = True
    return gone


def folder_listed(address: str) -> list[Entry] | None:
    """Return what the listing says is in a folder, None as in ``file_listed``."""
    listing = _listing.get()
    found = listing.folders.get(address.rstrip("/")) if listing is not None else None
    if listing is None or found is None:
        return None
    listing.used = True
    return list(found.values())
