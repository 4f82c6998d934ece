"""Finds what keeps contents from being what was saved, or what the format's own library gives."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, FolderSource, KeyPath, Note, NoteKind, Source
from ckptdoctor.checkpoint.checkpoint import concerns
from ckptdoctor.checkpoint.keypath import ROOT
from ckptdoctor.errors import CkptDoctorError, DamagedError
from ckptdoctor.formats import examine
from ckptdoctor.remote import addresses
from ckptdoctor.shell import quote

_SAFETENSORS = "safetensors"
# only headers of safetensors are said to have these
_HEADER = frozenset({NoteKind.HEADER_INVALID, NoteKind.OFFSETS_INVALID})
# where something else stands for a tensor that cannot be
_LOST = frozenset({NoteKind.TENSOR_ODD, NoteKind.STORAGE_MISSING})
# the library refuses a file that goes on behind its tensors; torch reads past the end of its own
_ENDS = NoteKind.TRAILING_BYTES


def faults_of(checkpoint: Checkpoint, source: Source, root: KeyPath = ROOT) -> Iterator[Note]:
    """Yield the notes according to which a checkpoint, or the part below ``root``, is not what was saved.

    Missing bytes are not among them: the code that makes a tensor of them reports it.
    """
    for note in checkpoint.notes:
        if not concerns(note, root):
            continue
        lost = note.kind in _LOST and note.keys  # without keys: no tensor of the contents
        ends = note.kind is _ENDS and _of_safetensors(checkpoint, source, note)
        if note.kind in _HEADER or lost or ends:
            yield note


def require_sound(checkpoint: Checkpoint, source: Source, root: KeyPath = ROOT) -> None:
    """Raise DamagedError for the first fault, with the byte where it is known, and what to do."""
    note = next(faults_of(checkpoint, source, root), None)
    if note is None:
        return
    path = addresses.shown(checkpoint.path)
    known = note.offset is None or f"{note.offset:,}" in note.message
    where = "" if known else f" (at byte {note.offset:,})"
    refused = "" if note.kind in _LOST else ", so safetensors rejects it"
    raise DamagedError(
        f"{path}: {note.message.rstrip('.')}{where}{refused}. strict=False loads what can be loaded. More: "
        f"ckptdoctor check {quote(path)}",
        offset=note.offset,
        member=note.member,
    )


def _of_safetensors(checkpoint: Checkpoint, source: Source, note: Note) -> bool:
    """Return whether the note is about a safetensors file.

    That is the whole checkpoint, or the file of a folder that it names.
    """
    if checkpoint.format == _SAFETENSORS:
        return True
    if not isinstance(source, FolderSource) or note.member is None:
        return False
    try:
        return examine(source.open(note.member)).format == _SAFETENSORS
    except CkptDoctorError:  # a record of a file, such as "model.pt/data.pkl"
        return False
