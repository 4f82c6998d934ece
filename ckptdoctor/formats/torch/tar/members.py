"""The members of a tar archive by name: where the data of each lies."""

from __future__ import annotations

from typing import NamedTuple

from ckptdoctor.checkpoint import Source
from ckptdoctor.formats.recognise.tars import walk


class Member(NamedTuple):
    """``size`` bytes at ``offset`` of the file, as the archive says; fewer may be there."""

    offset: int
    size: int


def members_of(source: Source) -> dict[str, Member]:
    """The regular files of the archive; of several with one name the last, as tarfile does."""
    return {entry.name.removeprefix("./"): Member(entry.offset, entry.size) for entry in walk(source) if entry.regular}
