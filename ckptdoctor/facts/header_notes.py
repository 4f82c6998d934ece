"""Why safetensors refuses a header: for its metadata, or for all else."""

from __future__ import annotations

from ckptdoctor.checkpoint import Note, NoteKind
from ckptdoctor.facts.notes import Noted, notes_of

# how the reader's notes on metadata begin (formats.safetensors.header)
_METADATA = ("the __metadata__ entry ", "__metadata__ is not an object of texts")
_REST = "are not listed"  # how its last note ends, which only counts


def metadata_notes(subject: Noted) -> list[Note]:
    """The notes on metadata that is not text."""
    notes = notes_of(subject, NoteKind.HEADER_INVALID)
    found = [note for note in notes if note.message.startswith(_METADATA)]
    counts = [note for note in notes if note.message.endswith(_REST)]
    return notes if found and len(found) + len(counts) == len(notes) else found


def other_header_notes(subject: Noted) -> list[Note]:
    """The notes on everything else in the header."""
    of_metadata = metadata_notes(subject)
    return [note for note in notes_of(subject, NoteKind.HEADER_INVALID) if note not in of_metadata]
