"""The folder of a Hugging Face model has all its weights in one file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, Source
from ckptdoctor.formats.folders.gathering import Gathering, folder_of, known, size_of
from ckptdoctor.formats.folders.weights import Weights, gather_weights, is_model, weights_in
from ckptdoctor.formats.unrepairable import refusal

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

NAME = "Hugging Face model folder"

_CHECKPOINTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".distcp")


def examine(source: Source, head: bytes) -> Container | None:
    """Return the folder by its config, and the one file that holds the weights; or by that file alone."""
    folder = folder_of(source)
    weights = weights_in(folder)
    if weights is None or not weights.single or "trainer_state.json" in folder.names:
        return None
    if not is_model(folder) and not _is_all(weights, folder.names):
        return None
    return known(folder, NAME, size_of(folder, weights.files))


def _is_all(weights: Weights, names: Iterable[str]) -> bool:
    """Return whether the one file is the only checkpoint there: where nothing says what the folder is, it decides.

    Folders in it may hold others, such as those of earlier steps.
    """
    others = [name for name in names if name.endswith((*_CHECKPOINTS, "/")) and not name.startswith(".")]
    return others == [weights.single]


def read(source: Source, container: Container) -> Checkpoint:
    """Return what the one file holds."""
    folder = folder_of(source)
    weights = weights_in(folder)
    assert weights is not None
    gathering = Gathering(folder)
    return gathering.checkpoint(container, gather_weights(gathering, weights))


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Raise RefusedError: such a folder is not repaired in place."""
    raise refusal(wanted.original)
