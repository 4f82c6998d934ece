"""Checkpoints that must not pass for the whole: of which files are missing or damaged, or whose values are others.

What says so, and what to do.
"""

from __future__ import annotations

from shlex import quote

from ckptdoctor.checkpoint import ROOT, Checkpoint, KeyPath, Note, NoteKind, addresses
from ckptdoctor.checkpoint.checkpoint import concerns, told_of, unread_files
from ckptdoctor.errors import DamagedError
from ckptdoctor.facts.torn import is_salvaged_whole


def require_every_file(checkpoint: Checkpoint, root: KeyPath = ROOT) -> None:
    """Raises DamagedError, with what to do, where a file was not read that may hold something below ``root``."""
    unread = unread_files(checkpoint, root)
    if unread:
        its = "its" if len(unread) == 1 else "their"
        raise DamagedError(
            f"{addresses.shown(checkpoint.path)}: {told_of(checkpoint, unread)}. "
            f"Put the real file{'' if len(unread) == 1 else 's'} in {its} place, {_remedy(checkpoint)}."
        )


def require_own_values(checkpoint: Checkpoint, root: KeyPath = ROOT) -> None:
    """Raises DamagedError where what torch loads below ``root`` is not what is shown, since state replaces values."""
    replaced = next((note for note in checkpoint.notes if _replaces(note, root)), None)
    if replaced is not None:
        path = addresses.shown(checkpoint.path)
        raise DamagedError(
            f"{path}: {replaced.message.rstrip('.')}. No values are taken from this file: take it from its source "
            f"again, or see what “ckptdoctor check {quote(path)}” says."
        )


def _replaces(note: Note, root: KeyPath) -> bool:
    return note.kind is NoteKind.TENSOR_STATE and concerns(note, root)


def _remedy(checkpoint: Checkpoint) -> str:
    """What else can be done, as the end of a sentence: another folder of what is whole, or to look closer."""
    path = quote(addresses.shown(checkpoint.path))
    if checkpoint.tensors and is_salvaged_whole(checkpoint):
        return f"or first save what is whole with “ckptdoctor salvage {path}”"
    return f"or see what “ckptdoctor check {path}” says"
