"""``torch.save`` wrote such files before torch 1.6: a run of pickles, then the storages one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, Source
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch.legacy.read import NAME, examine, read

if TYPE_CHECKING:  # what only repairs need is not loaded to check a file
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

__all__ = ["NAME", "examine", "read", "salvage", "write"]


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Return how to write a copy that holds what is wanted: see ``torch.legacy.writer``, which only repairs import.

    Raises RefusedError where there is no source: new files get today's format.
    """
    if source is None:
        raise RefusedError("torch writes archives today: new files never get the old format.")
    if wanted.stored:
        from ckptdoctor.formats.in_place import write_in_place

        return write_in_place(wanted, source)
    from ckptdoctor.formats.torch.legacy import writer

    return writer.write_copy(wanted, source)


def salvage(source: Source, container: Container) -> Checkpoint:
    """Return the contents of a file that was cut off, with whatever is left of them.

    ``write`` then copies what is whole.

    The pickles come first, so that only the last storages can be missing: those of which nothing is left have no
    extent, the one at the cut a shorter one. Raises DamagedError where the pickles are not whole.
    """
    from ckptdoctor.formats.torch.legacy.writer import write_what_is_left

    write_what_is_left(source)
    return read(source, container)
