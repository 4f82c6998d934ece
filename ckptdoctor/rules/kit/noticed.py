"""Finds what readers noticed, and turns it into problems: one for each note, and a last one for all too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Container, Note, NoteKind
from ckptdoctor.edits import Fix
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.framework import Problem
from ckptdoctor.rules.kit import wording
from ckptdoctor.values.damage import Integrity

# Anything that carries notes. A rule over Noted does not depend on the moment at which a reader sees something: when
# it recognises the file, when it reads the contents, or when it reads every byte. It runs over each of the three.
Noted = Container | Checkpoint | Integrity


def notes_of(subject: Noted, *kinds: NoteKind) -> list[Note]:
    """Return the notes of these kinds. Those of a Checkpoint that its Container has already are left out: said once."""
    told = subject.container.notes if isinstance(subject, Checkpoint) and subject.container is not None else ()
    return [note for note in subject.notes if note.kind in kinds and note not in told]


def format_of(subject: Noted) -> str:
    """Return the name of the container format ("torch zip"), or "" when nothing matched."""
    return subject.checkpoint.format if isinstance(subject, Integrity) else subject.format


# the reader's words for a version record that is there (formats.torch.zip.read)
_KNOWN_WORDS = "version record that torch does not know"


def version_notes(subject: Noted) -> list[Note]:
    """Return the notes on a version record that torch does not know."""
    return [note for note in notes_of(subject, NoteKind.ZIP_UNUSUAL) if _KNOWN_WORDS in note.message]


# ---- what is told of them


MOST = 8  # notes of one kind that are told one by one


def location(note: Note) -> Location:
    """Return where the note was made."""
    return Location(member=note.member or None, offset=note.offset)


def sentence(note: Note, otherwise: str) -> str:
    """Return the note's own words as a finding's message (no full stop), or ``otherwise`` where it has none."""
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
    """Yield a problem for each note; ``otherwise`` is the message of a note without words. ``fix`` repairs them all.

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
