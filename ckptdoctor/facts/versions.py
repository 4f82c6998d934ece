"""What a reader noticed of the version of an archive, apart from all else that is unusual about archives."""

from __future__ import annotations

from ckptdoctor.checkpoint import Note, NoteKind
from ckptdoctor.facts.notes import Noted, notes_of

# the reader's words for a version record that is there (formats.torch.zip.read)
_KNOWN_WORDS = "version record that torch does not know"


def version_notes(subject: Noted) -> list[Note]:
    """The notes on a version record that torch does not know."""
    return [note for note in notes_of(subject, NoteKind.ZIP_UNUSUAL) if _KNOWN_WORDS in note.message]


def unusual_notes(subject: Noted) -> list[Note]:
    """What else is unusual about the archive."""
    of_version = version_notes(subject)
    return [note for note in notes_of(subject, NoteKind.ZIP_UNUSUAL) if note not in of_version]
