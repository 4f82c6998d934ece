"""Refuses checkpoints that must not pass for complete, and sorts what readers noted of headers.

Files may be missing, cut off or damaged, and values may be others than torch loads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ckptdoctor.checkpoint import ROOT, Checkpoint, KeyPath, Note, NoteKind
from ckptdoctor.checkpoint.checkpoint import concerns, told_of, unread_files
from ckptdoctor.errors import DamagedError
from ckptdoctor.remote import addresses
from ckptdoctor.shell import quote

# ---- folders of which a file is cut off


# folders that are salvaged as a whole; of others, one names the file
_WHOLE = ("sharded Hugging Face checkpoint", "Hugging Face model folder")
# files that are salvaged, and what they are called in other folders
_FORMATS = ("torch zip", "torch legacy", "safetensors")
_FILES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")


def is_salvaged_whole(checkpoint: Checkpoint) -> bool:
    """Return whether ``salvage`` takes the folder: each shard by itself, and a new index."""
    return checkpoint.format in _WHOLE and not addresses.is_address(checkpoint.path)


def salvage_advice(checkpoint: Checkpoint, file: str) -> str:
    """Return the command that recovers what is intact if ``file`` of the folder is damaged, as a sentence.

    "" where no command does.
    """
    if is_salvaged_whole(checkpoint):
        return "If there is no other copy, recover every intact tensor into a new folder: ckptdoctor salvage FILE"
    path = to_salvage(checkpoint, file)
    if path is None:
        return ""
    return f"If there is no other copy, recover every tensor before the cut: ckptdoctor salvage {quote(path)}"


def to_salvage(checkpoint: Checkpoint, member: str | None) -> str | None:
    """Return the path to give to ``salvage`` where ``member`` is damaged; None where salvage takes nothing of it.

    Of most folders it is the file that the member is, or is in.
    """
    if is_salvaged_whole(checkpoint):
        return checkpoint.path
    if not os.path.isdir(checkpoint.path):
        return checkpoint.path if checkpoint.format in _FORMATS else None
    if member is None:
        return None
    path = os.path.join(checkpoint.path, member)
    while not os.path.lexists(path) and len(path) > len(checkpoint.path):  # a record of a file
        path = os.path.dirname(path)
    return path if path.lower().endswith(_FILES) and os.path.isfile(path) else None


# ---- what refuses to go on, and says what to do


def require_every_file(checkpoint: Checkpoint, root: KeyPath = ROOT) -> None:
    """Raise DamagedError, with what to do, where a file was not read that may hold something below ``root``."""
    unread = unread_files(checkpoint, root)
    if unread:
        its = "its" if len(unread) == 1 else "their"
        raise DamagedError(
            f"{addresses.shown(checkpoint.path)}: {told_of(checkpoint, unread)}. Put the real "
            f"file{'' if len(unread) == 1 else 's'} in {its} place, {_remedy(checkpoint)}"
        )


def require_own_values(checkpoint: Checkpoint, root: KeyPath = ROOT) -> None:
    """Raise DamagedError where what torch loads below ``root`` is not what is shown, since state replaces values."""
    replaced = next((note for note in checkpoint.notes if _replaces(note, root)), None)
    if replaced is not None:
        path = addresses.shown(checkpoint.path)
        raise DamagedError(
            f"{path}: {replaced.message.rstrip('.')}. No values are taken from this file. Download it again, "
            f"or look closer: ckptdoctor check {quote(path)}"
        )


def _replaces(note: Note, root: KeyPath) -> bool:
    return note.kind is NoteKind.TENSOR_STATE and concerns(note, root)


def _remedy(checkpoint: Checkpoint) -> str:
    """Return the end of a sentence that names the other way: to recover what is intact, or to look closer."""
    path = quote(addresses.shown(checkpoint.path))
    if checkpoint.tensors and is_salvaged_whole(checkpoint):
        return f"or recover what is intact: ckptdoctor salvage {path}"
    return f"or look closer: ckptdoctor check {path}"


# ---- why safetensors refuses a header: for its metadata, or for all else


# how the reader's notes on metadata begin (formats.safetensors.header)
ENTRY = "the __metadata__ entry "
_METADATA = (ENTRY, "__metadata__ is not an object of strings")
_REST = " not listed"  # how its last note ends, which only counts


def metadata_notes(notes: Iterable[Note]) -> list[Note]:
    """Return those of the notes on a header that are on metadata that is not text."""
    on_header = [note for note in notes if note.kind is NoteKind.HEADER_INVALID]
    found = [note for note in on_header if note.message.startswith(_METADATA)]
    counts = [note for note in on_header if note.message.endswith(_REST)]
    return on_header if found and len(found) + len(counts) == len(on_header) else found
