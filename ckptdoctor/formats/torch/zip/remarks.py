"""Collects what is odd about the records of an archive, so that one cause over many records is one note."""

from __future__ import annotations

from ckptdoctor.checkpoint import Note, NoteKind
from ckptdoctor.formats.torch.zip.record import shown
from ckptdoctor.wording import beyond

# how many records a note names before it only counts them
_NAMED = 3

# causes beyond this many, each with its own wording, are counted as one
_MOST_CAUSES = 50
_MORE = "has something else of this kind that is not told in detail"

# the kinds that say that the archive cannot be copied without taking sides
_TROUBLE = frozenset({NoteKind.ZIP_AMBIGUOUS, NoteKind.ZIP_DAMAGED, NoteKind.TRUNCATED})


class Remarks:
    """Notes in the making: ``about`` records of one cause are gathered, ``add`` makes a note of its own."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._groups: dict[tuple[NoteKind, str], tuple[list[str], list[int], int | None]] = {}
        self.trouble = False

    def add(self, kind: NoteKind, message: str, *, member: str | None = None, offset: int | None = None) -> None:
        """One remark about the archive as a whole, at byte ``offset`` of the file, or about ``member``."""
        self.trouble |= kind in _TROUBLE
        self._notes.append(Note(kind, message, None if member is None else shown(member), offset))

    def about(self, kind: NoteKind, name: str, what: str, offset: int | None = None) -> None:
        """A remark about the record ``name``: ``what`` completes "the record … ", and is equal for equal causes.

        ``offset`` is where in the file it shows.
        """
        self.trouble |= kind in _TROUBLE
        if len(self._groups) >= _MOST_CAUSES and (kind, what) not in self._groups:
            what = _MORE
        names, count, _ = self._groups.setdefault((kind, what), ([], [0], offset))
        count[0] += 1
        if len(names) < _NAMED:
            names.append(name)

    def notes(self) -> tuple[Note, ...]:
        """All notes so far: those about the whole archive first."""
        grouped = [
            Note(kind, _sentence(names, count[0], what, offset), shown(names[0]))
            for (kind, what), (names, count, offset) in self._groups.items()
        ]
        return (*self._notes, *grouped)


def _sentence(names: list[str], count: int, what: str, offset: int | None) -> str:
    listed = ", ".join(map(shown, names))
    if count == 1:
        where = "" if offset is None else f" (at byte {offset:,} of the file)"
        return f"the record {listed}{where} {what}"
    more = beyond(count - len(names))
    return f"{count:,} records ({listed}{more}), each of which {what}"
