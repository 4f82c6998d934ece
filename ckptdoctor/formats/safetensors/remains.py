"""Reads a file that was cut off, or goes on behind its end, as if its header were all that is wrong to believe."""

from __future__ import annotations

from dataclasses import replace

from ckptdoctor.checkpoint import Checkpoint, Container, NoteKind, Source
from ckptdoctor.formats.safetensors.reader import header_of, read, remember

# what is wrong with the end of the file, not with the header
_ENDS = (NoteKind.TRUNCATED, NoteKind.TRAILING_BYTES)


def salvage(source: Source, container: Container) -> Checkpoint:
    """The contents with whatever is left of them; afterwards ``rewrite`` copies what is whole.

    Tensors of which nothing is left have a storage without an extent, the one at the cut a shorter one. Raises
    DamagedError where the header itself is not whole: all values lie behind it.
    """
    header = header_of(source)
    remember(source, replace(header, notes=tuple([note for note in header.notes if note.kind not in _ENDS])))
    return read(source, container)
