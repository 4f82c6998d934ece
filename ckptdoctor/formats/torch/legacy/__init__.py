"""Files as ``torch.save`` wrote them before torch 1.6: a run of pickles, then the storages one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, Source
from ckptdoctor.formats.torch.legacy.read import NAME, examine, read

if TYPE_CHECKING:  # what only repairs need is not loaded to check a file
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

__all__ = ["NAME", "examine", "read", "rewrite", "salvage"]


def rewrite(source: Source, wanted: Wanted) -> Recipe:
    """How to write the file with these edits applied: see ``torch.legacy.writer``, which only repairs import."""
    from ckptdoctor.formats.torch.legacy import writer

    return writer.rewrite(source, wanted)


def salvage(source: Source, container: Container) -> Checkpoint:
    """The contents of a file that was cut off, with whatever is left of them; ``rewrite`` then copies what is whole.

    The pickles come first, so that only the last storages can be missing: those of which nothing is left have no
    extent, the one at the cut a shorter one. Raises DamagedError where the pickles are not whole.
    """
    from ckptdoctor.formats.torch.legacy.writer import write_what_is_left

    write_what_is_left(source)
    return read(source, container)
