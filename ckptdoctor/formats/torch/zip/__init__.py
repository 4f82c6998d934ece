"""Archives that ``torch.save`` writes since torch 1.6: a zip file of a pickle and one record for each storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, Source
from ckptdoctor.formats.torch.zip.read import NAME, examine, read

if TYPE_CHECKING:  # what only repairs need is not loaded to check a file
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

__all__ = ["NAME", "examine", "read", "rewrite", "salvage"]


def rewrite(source: Source, wanted: Wanted) -> Recipe:
    """How to write the archive so that it holds what is wanted: see ``torch.zip.writer``, which only repairs import."""
    from ckptdoctor.formats.torch.zip import writer

    return writer.rewrite(source, wanted)


def salvage(source: Source, container: Container) -> Checkpoint:
    """The contents of a broken file with whatever is left of them: see ``torch.zip.sound_records``."""
    from ckptdoctor.formats.torch.zip.sound_records import salvage as what_is_left

    return what_is_left(source, container)
