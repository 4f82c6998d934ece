"""Arrays as the nouns of a checkpoint: tensors, or records of what torch has no type for."""

from __future__ import annotations

from collections.abc import Mapping

from ckptdoctor.checkpoint import KeyPath, Note, NoteKind, Opaque, Sequence, Storage, Tensor, show_path
from ckptdoctor.formats.arrays.npy_header import Header
from ckptdoctor.wording import and_more

REBUILD = "numpy.ndarray"

# arrays that one note names
_NAMED = 3


def tensor(path: KeyPath, header: Header, storage: Storage, offset: int) -> Tensor:
    """An array of numbers; ``offset`` is where in the storage its values begin, in elements."""
    assert header.element is not None
    return Tensor(path, header.element.dtype, header.shape, header.stride, storage, offset, rebuild=REBUILD)


def opaque(header: Header) -> Opaque:
    """An array that is shown but not read."""
    return Opaque(REBUILD, (Sequence("tuple", header.shape), header.code))


def reason(code: str) -> str:
    """Why an array of this type is no tensor, for ``left_out``."""
    return "arrays of Python objects, which are pickled" if "O" in code else f"arrays of {code or 'nothing'}"


def left_out(reasons: Mapping[str, list[KeyPath]], member: str | None = None) -> list[Note]:
    """Notes on arrays that are not read, one for each reason: "arrays of <U3"."""
    notes = []
    for why, paths in reasons.items():
        named = and_more(paths, _NAMED, say=show_path)
        notes.append(Note(NoteKind.NOT_EXAMINED, f"{why}: {named}", member))
    return notes


BIG_ENDIAN = "the values were written in big-endian byte order; they are swapped when they are loaded"
OTHER_ORDER = "big-endian arrays beside others"
