"""``torch.jit.save`` and C++ write TorchScript archives; what is read is the state dict of the module inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, Source
from ckptdoctor.formats.unrepairable import refused
from ckptdoctor.formats.zip_archives import archive_of

if TYPE_CHECKING:
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

__all__ = ["NAME", "examine", "read", "write"]

NAME = "TorchScript archive"


def examine(source: Source, head: bytes) -> Container | None:
    """Return a zip archive with ``constants.pkl`` next to ``data.pkl``, or None for any other file."""
    archive = archive_of(source, head)
    if archive is None or archive.folder("constants.pkl", "data.pkl") is None:
        return None
    return Container(source.path, source.size, NAME, head, True, notes=archive.notes, identity=source.identity)


def read(source: Source, container: Container) -> Checkpoint:
    """Return the state dict, from the pickle and the records' list; none of the code is run. Raises DamagedError."""
    from ckptdoctor.formats.torch.script.contents import read_script

    return read_script(source, container)


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Raise RefusedError: the weights of a program are taken out of it, not repaired in it."""
    raise refused(wanted.original.path, NAME)
