"""A file or folder as a listing has it, on this machine or another."""

from __future__ import annotations

import os

from ckptdoctor.noun import maker, noun


@noun
class Entry:
    """A file or folder by its name and path; ``modified`` is a time in seconds, 0.0 where nobody knows it.

    ``status`` is what the system says of a local one, links followed; ``link``: its name is a link. ``etag`` is what a
    store calls the bytes of an object, "" where it has no name for them.
    """

    name: str
    path: str
    folder: bool
    size: int
    modified: float
    status: os.stat_result | None = None
    link: bool = False
    etag: str = ""


entry = maker(Entry)  # a store of a million files is listed with one of these for each
