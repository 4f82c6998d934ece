"""A safetensors file has eight bytes of length, a JSON header, and the values of the tensors one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, Source
from ckptdoctor.formats.safetensors.signature import NAME, looks_like

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

__all__ = ["NAME", "examine", "read", "salvage", "write"]


def examine(source: Source, head: bytes) -> Container | None:
    """Return what the header says, held to what safetensors itself accepts.

    It is None when the file does not begin like one.

    A header that cannot be read at all makes a container that is not readable, with a note that says why.
    """
    if not looks_like(head, source.size):
        return None
    from ckptdoctor.formats.safetensors import reader  # brings json

    return reader.examine(source, head)


def read(source: Source, container: Container) -> Checkpoint:
    """Return the tensors and the metadata that the header names. Raises DamagedError when the header cannot be read."""
    from ckptdoctor.formats.safetensors import reader

    return reader.read(source, container)


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Return how to write the file: as a copy, or out of nouns alone. Only repairs import what does it."""
    if source is None:
        from ckptdoctor.formats.fresh import safetensors

        return safetensors.write(wanted)
    if wanted.stored:
        from ckptdoctor.formats.in_place import write_in_place

        return write_in_place(wanted, source)
    from ckptdoctor.formats.safetensors import writer

    return writer.write_copy(wanted, source)


def salvage(source: Source, container: Container) -> Checkpoint:
    """Return the contents of a broken file with whatever is left of them: see ``safetensors.reader``."""
    from ckptdoctor.formats.safetensors import reader

    return reader.salvage(source, container)
