"""Why safetensors refuses a header: for its metadata, or for all else."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.checkpoint import Checkpoint, Note, NoteKind
from ckptdoctor.facts.notes import Noted, notes_of

# how the reader's notes on metadata begin (formats.safetensors.header)
ENTRY = "the __metadata__ entry "
_METADATA = (ENTRY, "__metadata__ is not an object of texts")
_REST = "are not listed"  # how its last note ends, which only counts


def header_notes(checkpoint: Checkpoint) -> list[Note]:
    """All notes on the header, whoever tells of them."""
    return [note for note in checkpoint.notes if note.kind is NoteKind.HEADER_INVALID]


def metadata_notes(checkpoint: Checkpoint) -> list[Note]:
    """The notes on metadata that is not text."""
    return _on_metadata(header_notes(checkpoint))


def other_header_notes(subject: Noted) -> list[Note]:
    """The notes on everything else in the header."""
    notes = notes_of(subject, NoteKind.HEADER_INVALID)
    of_metadata = _on_metadata(notes)
    return [note for note in notes if note not in of_metadata]


def _on_metadata(notes: Sequence[Note]) -> list[Note]:
    found = [note for note in notes if note.message.startswith(_METADATA)]
    counts = [note for note in notes if note.message.endswith(_REST)]
    return list(notes) if found and len(found) + len(counts) == len(notes) else found
