"""Defines the nouns of a zip archive: records, the directory that lists them, and notes on what is odd."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import NamedTuple

from ckptdoctor.checkpoint import Note, NoteKind
from ckptdoctor.noun import field, noun
from ckptdoctor.wording import beyond


class Record(NamedTuple):
    """One record of the archive, as the central directory describes it and torch would read it.

    ``size`` is the length of the data, ``compressed`` what it takes in the file (equal for stored records), both in
    bytes; ``data_offset`` is where it begins. ``directory`` marks what torch takes for a folder and never reads.
    A tuple, not a dataclass: a checkpoint has up to hundreds of thousands of them.
    """

    name: str
    method: int
    flags: int
    crc: int
    size: int
    compressed: int
    header_offset: int
    data_offset: int
    directory: bool

    @property
    def end(self) -> int:
        """The byte after the data."""
        return self.data_offset + self.compressed


record_of = partial(tuple.__new__, Record)  # a named tuple's own constructor takes several times as long


@noun(slots=False)
class Directory:
    """What the archive lists. ``records`` are in directory order; ``prefix`` is the folder that torch looks in.

    ``found`` maps each name, in ASCII lower case, to the record that torch finds under it: torch's look-up ignores
    case, and of several matches takes the one that its binary search meets first. ``end`` is the byte after the end
    record and its comment. ``repairable`` is false where readers disagree about what the archive holds, or where it
    is damaged, so that a copy would settle the question silently. ``salvaged`` is true where it lists what is left of
    a broken archive; ``words`` are small records (name in the folder, data) that a copy needs and the file has lost.
    """

    records: tuple[Record, ...]
    prefix: str
    found: dict[str, Record]
    end: int
    notes: tuple[Note, ...]
    repairable: bool
    salvaged: bool = False
    words: tuple[tuple[str, bytes], ...] = ()

    def find(self, name: str) -> Record | None:
        """Return the record that torch reads when it asks for ``prefix/name``, or None where there is none."""
        return self.found.get(ascii_lower(f"{self.prefix}/{name}"))

    def storage(self, key: str) -> Record | None:
        """Return the record in which torch looks for the storage with this key."""
        found = self.found.get(self.folder + key)  # the numbers that torch gives them have no case
        return self.find(f"data/{key}") if found is None else found

    @cached_property
    def folder(self) -> str:
        """What the names of the records of storages begin with, in lower case."""
        return ascii_lower(f"{self.prefix}/data/")


def ascii_lower(name: str) -> str:
    """Lower case of A to Z only, as miniz compares names."""
    if name.isascii():
        return name.lower()
    try:
        return raw_name(name).lower().decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a surrogate pair, out of a pickle: no bytes are the name of such a record
        return name


def all_ascii_lower(names: Sequence[str]) -> Sequence[str]:
    """Return the same for many names: all at once where that can be."""
    joined = "\n".join(names)
    if not joined.isascii() or joined.count("\n") != len(names) - 1:
        return list(map(ascii_lower, names))
    lower = joined.lower()
    return names if lower == joined else lower.split("\n")


def raw_name(name: str) -> bytes:
    """Return the bytes of a record's name in the file."""
    return name.encode("utf-8", "surrogateescape")


def shown(name: str) -> str:
    """Return a record's name for people: bytes that are not UTF-8 escaped, and at most 120 characters."""
    text = name.encode("utf-8", "backslashreplace").decode("utf-8") if not name.isascii() else name
    return text if len(text) <= 120 else f"{text[:100]}… ({len(text)} characters)"


# ---- what is odd about records, so that one cause over many of them is one note


# how many records a note names before it only counts them
_NAMED = 3

# causes beyond this many, each with its own wording, are counted as one
_MOST_CAUSES = 50
_MORE = "has something similar that is not reported in detail"

# the kinds that say that the archive cannot be copied without taking sides
_TROUBLE = frozenset({NoteKind.ZIP_AMBIGUOUS, NoteKind.ZIP_DAMAGED, NoteKind.TRUNCATED})


@noun(frozen=False)
class _Cause:
    """Records of one cause: the names of the first of them, how many there are, and where in the file the first is."""

    offset: int | None
    names: list[str] = field(default_factory=list)
    count: int = 0


class Remarks:
    """Notes in the making: ``about`` records of one cause are gathered, ``add`` makes a note of its own."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._causes: dict[tuple[NoteKind, str], _Cause] = {}
        self.trouble = False

    def add(self, kind: NoteKind, message: str, *, member: str | None = None, offset: int | None = None) -> None:
        """Add one note about the archive as a whole, at byte ``offset`` of the file, or about ``member``."""
        self.trouble |= kind in _TROUBLE
        self._notes.append(Note(kind, message, None if member is None else shown(member), offset))

    def about(self, kind: NoteKind, name: str, what: str, offset: int | None = None) -> None:
        """Add a note about the record ``name``: ``what`` completes "the record … ", equal for equal causes.

        ``offset`` is where in the file it shows.
        """
        self.trouble |= kind in _TROUBLE
        if len(self._causes) >= _MOST_CAUSES and (kind, what) not in self._causes:
            what = _MORE
        cause = self._causes.setdefault((kind, what), _Cause(offset))
        cause.count += 1
        if len(cause.names) < _NAMED:
            cause.names.append(name)

    def notes(self) -> tuple[Note, ...]:
        """Return all notes so far: those about the whole archive first."""
        grouped = [
            Note(kind, _sentence(cause, what), shown(cause.names[0])) for (kind, what), cause in self._causes.items()
        ]
        return (*self._notes, *grouped)


def _sentence(cause: _Cause, what: str) -> str:
    listed = ", ".join(map(shown, cause.names))
    if cause.count == 1:
        where = "" if cause.offset is None else f" (at byte {cause.offset:,} of the file)"
        return f"the record {listed}{where} {what}"
    more = beyond(cause.count - len(cause.names))
    return f"{cause.count:,} records ({listed}{more}), each of which {what}"
