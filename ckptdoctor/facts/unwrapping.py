"""What a checkpoint that was packed is called once it is unpacked."""

from __future__ import annotations

import os.path

from ckptdoctor.checkpoint import Container, NoteKind
from ckptdoctor.facts.notes import notes_of

# what is left out of the name of a packed file, from the end
_PACKING = (".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".z", ".lzma", ".zip", ".tar", ".mar")

_TORCH = (".pt", ".pth", ".ckpt", ".bin")
_SAFETENSORS = (".safetensors", ".sft")
# what other contents are called; torch's own come first
_OTHERS = {"NumPy archive": (".npz",), "NumPy array": (".npy",), "pickle": (".pkl", ".pickle", ".joblib")}


def unwrapped_path(container: Container) -> str | None:
    """Where the inside of a packed file goes: beside it, under its name without what says how it was packed.

    Only its own name counts, or the one that the person gave (``weights.zip/epoch_9.pt``), and none that the file
    holds: those could be anything. None where it is not packed.
    """
    notes = notes_of(container, NoteKind.ARCHIVE_WRAPPED)
    if not notes:
        return None
    path, member = container.path, notes[0].member
    if member and path.endswith(f"/{member}"):
        path = os.path.join(os.path.dirname(path[: -len(member) - 1]), member.rpartition("/")[2])
    stem = path
    while stem.lower().endswith(_PACKING):
        stem = os.path.splitext(stem)[0]
    fitting = _fitting(container.format)
    known, suffix = os.path.splitext(stem)
    if suffix.lower() in fitting:
        return stem
    if suffix.lower() in (*_TORCH, *_SAFETENSORS):
        stem = known
    return stem + fitting[0]


def _fitting(format_: str) -> tuple[str, ...]:
    if format_ == "safetensors":
        return _SAFETENSORS
    return _OTHERS.get(format_, _TORCH)
