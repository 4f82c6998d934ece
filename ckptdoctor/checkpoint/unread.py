"""Files of a checkpoint in several files that were not read: they are missing, damaged, or outside of its folder."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.checkpoint.checkpoint import Checkpoint
from ckptdoctor.checkpoint.keypath import ROOT, KeyPath
from ckptdoctor.checkpoint.notes import Note, NoteKind
from ckptdoctor.checkpoint.wording import plural

UNREAD = frozenset({NoteKind.FILE_MISSING, NoteKind.FILE_DAMAGED, NoteKind.FILE_OUTSIDE})
# what lists every tensor with its shape in a file of its own, so that without the others only values are missing
_LISTING = "torch distributed checkpoint"
_TOLD = 3  # files that are told one by one before the rest is counted


def unread_files(checkpoint: Checkpoint, root: KeyPath = ROOT) -> tuple[Note, ...]:
    """What was noted of files that were not read: of all that may hold something below ``root``.

    That is known where an index names their tensors; a file without any may hold everything.
    """
    return tuple([note for note in checkpoint.notes if note.kind in UNREAD and _concerns(note, root)])


def lists_all(checkpoint: Checkpoint) -> bool:
    """Whether every tensor is known by name, shape and dtype, whichever files were not read."""
    return checkpoint.format == _LISTING


def _concerns(note: Note, root: KeyPath) -> bool:
    return not note.keys or any(key[: len(root)] == root for key in note.keys)


def told_of(checkpoint: Checkpoint, notes: Sequence[Note]) -> str:
    """What is wrong with these files of it, without its path or a full stop: the first of them in their own words."""
    own = f"{checkpoint.path}: "
    said = "; ".join([note.message.removeprefix(own).rstrip(".") for note in notes[:_TOLD]])
    rest = len(notes) - _TOLD
    return f"{said}; and {plural(rest, 'more file')}" if rest > 0 else said
