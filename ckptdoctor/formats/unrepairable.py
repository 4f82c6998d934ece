"""Says to whoever wants to repair a container that is read and not written, or a folder, what can be done instead."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.checkpoint.naming import stem_of
from ckptdoctor.errors import RefusedError
from ckptdoctor.shell import quote
from ckptdoctor.wording import format_name


def refused(path: str, name: str) -> RefusedError:
    """Return the error for edits of a file of the format ``name``: what makes a file that can be repaired."""
    output = f"{stem_of(path) if os.path.isdir(path) else os.path.splitext(path)[0]}.safetensors"
    return RefusedError(
        f"{path} is a {name}, which cannot be repaired in place. Convert it first: ckptdoctor convert "
        f"{quote(path)} {quote(output)}"
    )


# suffixes of files that are checkpoints by themselves; what others hold makes sense only with the rest of the folder
_WHOLE = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")


def refusal(checkpoint: Checkpoint, command: str | None = None) -> RefusedError:
    """Return the error for edits of a folder: its only file is named, and several are written elsewhere.

    ``command`` is what does that; where it is not known, they become one file first.
    """
    path = checkpoint.path
    files = sorted({file for tensor in checkpoint.tensors for file in _files(tensor)})
    if len(files) == 1 and files[0].endswith(_WHOLE):
        file = os.path.join(path, os.path.relpath(files[0], path))
        return RefusedError(f"{path} is a folder whose tensors are all in one file. Name that file: {quote(file)}")
    kind = "a folder of several files" if len(files) > 1 else f"a folder ({format_name(checkpoint.format)})"
    if command is not None:
        told = f"{path} is {kind}, which is not repaired in place. This writes a repaired one:"
        if checkpoint.format == "sharded Hugging Face checkpoint":
            told = f"{path} is {kind}. --in-place changes its files themselves; this writes a repaired one:"
        return RefusedError(f"{told}\n  {command}")
    return RefusedError(
        f"{path} is {kind}, which is not repaired in place. Make one file from it first: ckptdoctor convert "
        f"{quote(path)} {quote(_single(checkpoint))}"
    )


def _single(checkpoint: Checkpoint) -> str:
    """Return a name for the one file: safetensors where that can hold everything."""
    stem = stem_of(checkpoint.path)
    return f"{stem}.safetensors" if all(len(each.path) == 1 for each in checkpoint.tensors) else f"{stem}.pt"


def _files(tensor: Tensor) -> Iterator[str]:
    if tensor.storage is not None and tensor.storage.extent is not None:
        yield tensor.storage.extent.file
    for part in tensor.parts:
        yield from _files(part)
    for _, chunk in tensor.chunks:
        yield from _files(chunk)
