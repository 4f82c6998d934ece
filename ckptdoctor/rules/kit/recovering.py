"""The rules about damaged values share what can still be done without another copy, as far as commands do it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ckptdoctor.checkpoint import Checkpoint, KeyPath, NoteKind, Storage
from ckptdoctor.checkpoint.naming import stem_of
from ckptdoctor.checkpoint.patterns import drop_patterns
from ckptdoctor.facts.reader_notes import to_salvage
from ckptdoctor.formats.fresh.torch_zip import unwritable
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.shell import quote, word

_PATTERNS = 4  # --drop options on one command line


def salvaged(checkpoint: Checkpoint, damaged: Iterable[Storage]) -> str | None:
    """Return what ``salvage`` and ``graft`` are to be given, as a shell word; FILE is the checkpoint itself.

    None where neither takes it: files of other formats, and folders of which more than one file is damaged.
    """
    path = to_salvage(checkpoint, None)
    if path is not None:
        return "FILE"
    files = {each.extent.file for each in damaged if each.extent is not None}
    if len(files) != 1 or not os.path.isdir(checkpoint.path):
        return None
    path = to_salvage(checkpoint, os.path.relpath(files.pop(), checkpoint.path))
    return None if path is None else quote(path)


def without(checkpoint: Checkpoint, keys: Sequence[KeyPath]) -> str:
    """Return the command that writes everything but these tensors of a container that is only read into a file.

    "" where nothing would be left, where it takes too many options, and where it would be refused.
    """
    gone = set(keys)
    going = [each for each in checkpoint.tensors if each.path in gone]
    noted = any(note.kind is not NoteKind.NOT_EXAMINED for note in checkpoint.notes)
    if is_address(checkpoint.path) or noted or not going or len(going) == len(checkpoint.tensors):
        return ""
    if len(going) < len(gone) or any(not isinstance(part, str) for path in gone for part in path):
        return ""  # parts of tensors, and members of lists, which would move the others
    if any(path not in gone for path, _ in unwritable(checkpoint.tree)):
        return ""
    patterns = drop_patterns(checkpoint, going)
    if len(patterns) > _PATTERNS:
        return ""
    stem = stem_of(checkpoint.path) if os.path.isdir(checkpoint.path) else os.path.splitext(checkpoint.path)[0]
    dropped = " ".join([f"--drop {word(pattern)}" for pattern in patterns])
    return f"ckptdoctor fix FILE {dropped} -o {quote(stem + '.pt')}"
