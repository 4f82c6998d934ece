"""Collects notes, so that a header with a million faults does not make a million notes."""

from __future__ import annotations

from collections import Counter

from ckptdoctor.checkpoint import KeyPath, Note, NoteKind
from ckptdoctor.wording import plural

# notes of one kind that are told; the others are counted
MOST = 20

_LONGEST_NAME = 200


class Remarks:
    """Notes in the making."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._counts: Counter[NoteKind] = Counter()

    def add(
        self,
        kind: NoteKind,
        message: str,
        offset: int | None = None,
        guidance: str = "",
        keys: tuple[KeyPath, ...] = (),
    ) -> None:
        """One remark; beyond ``MOST`` of its kind it is only counted."""
        self._counts[kind] += 1
        if self._counts[kind] <= MOST:
            self._notes.append(Note(kind, message, offset=offset, keys=keys, guidance=guidance))

    def count(self, kind: NoteKind, number: int) -> None:
        """More remarks of a kind, beyond those told."""
        self._counts[kind] += number

    def notes(self) -> tuple[Note, ...]:
        """All notes, in the order in which they were made; the number of those left out comes last."""
        more = [
            Note(
                kind,
                f"{plural(count - MOST, 'more place of this kind is', 'more places of this kind are')} not listed",
            )
            for kind, count in self._counts.items()
            if count > MOST
        ]
        return (*self._notes, *more)


def quoted(name: str) -> str:
    """A tensor's name in a message, at a length that can be read."""
    return f"“{name}”" if len(name) <= _LONGEST_NAME else f"“{name[:_LONGEST_NAME]}…” ({len(name):,} characters)"
