"""Reads a legacy file that was cut off: its pickles come first, so that only the last storages can be missing."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, Container, Source
from ckptdoctor.formats.torch.legacy.read import read
from ckptdoctor.formats.torch.legacy.writer import write_what_is_left


def salvage(source: Source, container: Container) -> Checkpoint:
    """The contents with whatever is left of them; afterwards ``rewrite`` copies what is whole.

    Storages of which nothing is left have no extent, the one at the cut a shorter one. Raises DamagedError where the
    pickles are not whole.
    """
    write_what_is_left(source)
    return read(source, container)
