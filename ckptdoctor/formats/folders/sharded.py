"""Shards hold a Hugging Face checkpoint: an index says which tensor is in which, or they only number themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, NoteKind, Source
from ckptdoctor.formats.folders.gathering import Gathering, folder_of, known, size_of
from ckptdoctor.formats.folders.new_index import write_index
from ckptdoctor.formats.folders.weights import gather_weights, weights_in

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

NAME = "sharded Hugging Face checkpoint"


def examine(source: Source, head: bytes) -> Container | None:
    """Return the folder by its index or the numbers in its names.

    One file of weights alone is another kind of folder.
    """
    folder = folder_of(source)
    weights = weights_in(folder)
    if weights is None or weights.single or "trainer_state.json" in folder.names:
        return None
    return known(folder, NAME, size_of(folder, weights.files))


def read(source: Source, container: Container) -> Checkpoint:
    """Return the union of the shards, by the index where there is one."""
    folder = folder_of(source)
    weights = weights_in(folder)
    assert weights is not None
    gathering = Gathering(folder)
    if weights.trouble is not None:
        gathering.note(NoteKind.INDEX_WRONG, weights.trouble.message, weights.trouble.member)
    return gathering.checkpoint(container, gather_weights(gathering, weights))


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Return how to write a new index; nothing else is done in place."""
    return write_index(wanted, source)
