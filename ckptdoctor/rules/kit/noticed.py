"""Turns what a reader noticed into problems: one for each note, and a last one for all that would be too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ckptdoctor.checkpoint import Note
from ckptdoctor.edits import Fix
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.framework import Problem
from ckptdoctor.rules.kit import wording

MOST = 8  # notes of one kind that are told one by one


def location(note: Note) -> Location:
    """Where the note was made."""
    return Location(member=note.member, offset=note.offset)


def sentence(note: Note, otherwise: str) -> str:
    """The note's own words as a finding's message (no full stop), or ``otherwise`` where it has none."""
    return note.message.strip().rstrip(".") or otherwise


def problems(
    notes: Sequence[Note],
    *,
    otherwise: str,
    cause: str,
    advice: str | Callable[[Note], str] = "",
    torch_says: tuple[str, ...] = (),
    severity: Severity | None = None,
    fix: Fix | None = None,
) -> Iterator[Problem]:
    """A problem for each note; ``otherwise`` is the message of a note without words. ``fix`` repairs them all.

    ``advice`` may depend on the note: then that on the first of those that are too many stands for them.
    """
    for note in notes[:MOST]:
        yield Problem(
            message=sentence(note, otherwise),
            cause=cause,
            torch_says=torch_says,
            advice=advice(note) if callable(advice) else advice,
            keys=note.keys,
            location=location(note),
            severity=severity,
            fix=fix,
        )
    rest = notes[MOST:]
    if rest:
        yield Problem(
            message=(
                f"{wording.plural(len(rest), 'more place')} of this kind, the first: {sentence(rest[0], otherwise)}"
            ),
            cause=cause,
            torch_says=torch_says,
            advice=advice(rest[0]) if callable(advice) else advice,
            keys=tuple([key for note in rest for key in note.keys]),
            location=location(rest[0]),
            severity=severity,
            fix=fix,
        )
