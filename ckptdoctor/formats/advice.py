"""Says what else can be done about a file that is not edited: the commands that refusals name."""

from __future__ import annotations

import os.path

from ckptdoctor.checkpoint import Checkpoint, Storage
from ckptdoctor.checkpoint.naming import stem_of
from ckptdoctor.errors import RefusedError
from ckptdoctor.shell import quote


def converted_first(path: str) -> str:
    """Return what to do about an archive or about values that are edited in no copy: to write them in another form."""
    return f"Convert it first: {conversion(path)}"


def salvaged_first(path: str) -> str:
    """Return what to do about a file that is damaged."""
    return f"To recover what is intact: ckptdoctor salvage {quote(path)}"


def as_damaged(reason: str, path: str, contents: Checkpoint) -> RefusedError:
    """Return the refusal to repair a file that is damaged, and would be afterwards."""
    found = any(_is_whole(each.storage) for each in contents.tensors if each.storage is not None)
    way = salvaged_first(path) if found else "Take another copy of the file."
    return RefusedError(f"A copy would be as damaged as the original: {reason}. {way}")


def _is_whole(storage: Storage) -> bool:
    extent = storage.extent
    return extent is not None and (storage.compressed or extent.length == storage.nbytes)


def conversion(path: str) -> str:
    """Return the command that writes a file as safetensors, next to it."""
    return f"ckptdoctor convert {quote(path)} {quote(converted(path))}"


def converted(path: str) -> str:
    """Return what such a conversion is called."""
    return f"{stem_of(path) if os.path.isdir(path) else os.path.splitext(path)[0]}.safetensors"
