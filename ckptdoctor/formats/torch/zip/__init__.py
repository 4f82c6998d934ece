"""``torch.save`` writes such archives since torch 1.6: a zip file of a pickle and one record for each storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, Source
from ckptdoctor.formats.torch.zip.read import NAME, examine, read

if TYPE_CHECKING:  # what only repairs need is not loaded to check a file
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

__all__ = ["NAME", "examine", "read", "salvage", "write"]


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Return how to write the archive: as a copy, or out of nouns alone. Only repairs import what does it."""
    if source is None:
        from ckptdoctor.formats.fresh import torch_zip

        return torch_zip.write(wanted)
    if wanted.stored:
        from ckptdoctor.formats.in_place import new_checksums, write_in_place
        from ckptdoctor.formats.torch.zip.checksums import restated

        changed = new_checksums(wanted)
        return write_in_place(wanted, source, restated(source, changed) if changed else ())
    from ckptdoctor.formats.torch.zip import writer

    return writer.write_copy(wanted, source)


def salvage(source: Source, container: Container) -> Checkpoint:
    """Return the contents of a broken file with whatever is left of them: see ``torch.zip.sound_records``."""
    from ckptdoctor.formats.torch.zip.sound_records import salvage as what_is_left

    return what_is_left(source, container)
