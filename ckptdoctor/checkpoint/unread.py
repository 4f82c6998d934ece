"""What a checkpoint in several files lacks: files that are missing, damaged or outside of its folder, and tensors."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.checkpoint.checkpoint import Checkpoint
from ckptdoctor.checkpoint.keypath import ROOT, KeyPath
from ckptdoctor.checkpoint.notes import Note, NoteKind
from ckptdoctor.wording import beyond

UNREAD = frozenset({NoteKind.FILE_MISSING, NoteKind.FILE_DAMAGED, NoteKind.FILE_OUTSIDE})
# what lists every tensor with its shape in a file of its own, so that without the others only values are missing
_LISTING = "torch distributed checkpoint"
_TOLD = 3  # files that are told one by one before the rest is counted


def unread_files(checkpoint: Checkpoint, root: KeyPath = ROOT) -> tuple[Note, ...]:
    """What was noted of files that were not read: of all that may hold something below ``root``.

    That is known where an index names their tensors, or where one branch of the tree is one file; any other may hold
    everything.
    """
    return tuple([note for note in checkpoint.notes if note.kind in UNREAD and concerns(note, root)])


def unheld(checkpoint: Checkpoint) -> tuple[Note, ...]:
    """What was noted of tensors that an index names and none of the files has, although each was read."""
    return tuple([note for note in checkpoint.notes if note.kind is NoteKind.INDEX_LACKS])


def lists_all(checkpoint: Checkpoint) -> bool:
    """Whether every tensor is known by name, shape and dtype, whichever files were not read."""
    return checkpoint.format == _LISTING


def concerns(note: Note, root: KeyPath) -> bool:
    """Whether what was noted may be of the part of the tree at ``root``."""
    common = min(len(note.branch), len(root))
    if note.branch[:common] != root[:common]:
        return False
    return not note.keys or any(key[: len(root)] == root for key in note.keys)


def told_of(checkpoint: Checkpoint, notes: Sequence[Note]) -> str:
    """What is wrong with these files of it, without its path or a full stop: the first of them in their own words."""
    own = f"{checkpoint.path}: "
    said = "; ".join([note.message.removeprefix(own).rstrip(".") for note in notes[:_TOLD]])
    return said + beyond(len(notes) - _TOLD, "file", before="; and ")
