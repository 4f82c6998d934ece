"""``torch.export.save`` writes programs (``.pt2``); their state dict and constants are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, Source
from ckptdoctor.formats.torch.exported.layouts import places_of
from ckptdoctor.formats.unrepairable import refused
from ckptdoctor.formats.zip_archives import archive_of

if TYPE_CHECKING:
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

__all__ = ["NAME", "examine", "read", "write"]

NAME = "torch.export program"


def examine(source: Source, head: bytes) -> Container | None:
    """Return a zip archive in one of the layouts of torch.export that has a state dict, or None for any other file."""
    archive = archive_of(source, head)
    if archive is None or not places_of(archive):
        return None
    return Container(source.path, source.size, NAME, head, True, notes=archive.notes, identity=source.identity)


def read(source: Source, container: Container) -> Checkpoint:
    """Return the state dict, from the lists of weights; the program is not looked at. Raises DamagedError."""
    from ckptdoctor.formats.torch.exported.contents import read_program

    return read_program(source, container)


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Raise RefusedError: the weights of a program are taken out of it, not repaired in it."""
    raise refused(wanted.original.path, NAME)
