"""A GGUF file holds weights for llama.cpp: a header, metadata, a list of tensors, and their values, many quantised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, Source

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

__all__ = ["NAME", "examine", "read", "write"]

NAME = "GGUF file"
MAGIC = b"GGUF"


def examine(source: Source, head: bytes) -> Container | None:
    """Return what the header says, or None for a file that does not begin with GGUF's magic.

    A header that is damaged, or of a version that is not known, makes a container that is not readable.
    """
    if not head.startswith(MAGIC):
        return None
    from ckptdoctor.formats.gguf import reader

    return reader.examine(source, head)


def read(source: Source, container: Container) -> Checkpoint:
    """Return the tensors and the metadata that the header names. Raises DamagedError when it cannot be read."""
    from ckptdoctor.formats.gguf import reader

    return reader.read(source, container)


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Raise RefusedError: nothing here writes GGUF."""
    from ckptdoctor.formats.gguf import reader

    raise reader.refused(wanted)
