"""Repairs an index of shards by writing it again."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, NoteKind
from ckptdoctor.checkpoint.checkpoint import UNREAD
from ckptdoctor.edits import Fix, Safety, WriteIndex
from ckptdoctor.rules.kit.noticed import Noted


def new_index(subject: Noted, code: str) -> Fix | None:
    """Return the repair, or None where the shards do not tell what a right index is."""
    name = index_to_write(subject)
    if name is None:
        return None
    title = "rewrite the index from the headers of the shards"
    return Fix(title, (WriteIndex(name),), Safety.SAFE, f"--select {code}")


_OF_INDEX = frozenset(
    {NoteKind.INDEX_STALE, NoteKind.INDEX_WRONG, NoteKind.INDEX_OMITS, NoteKind.INDEX_SIZE, NoteKind.INDEX_UNUSABLE}
)
_IN_THE_WAY = UNREAD | {NoteKind.INDEX_LACKS, NoteKind.KEY_IN_TWO_FILES}


def index_to_write(subject: Noted) -> str | None:
    """Return the name of an index that is wrong, where the headers of the shards say all that a right one does."""
    if not isinstance(subject, Checkpoint) or not subject.tensors:
        return None
    if any(note.kind in _IN_THE_WAY for note in subject.notes):
        return None
    return next((note.member for note in subject.notes if note.kind in _OF_INDEX and note.member), None)


def against_index(checkpoint: Checkpoint) -> str | None:
    """Return what is wrong with the index of a folder, if anything is: no new index may have the same fault."""
    return next((note.message for note in checkpoint.notes if note.kind in _OF_INDEX | _IN_THE_WAY), None)
