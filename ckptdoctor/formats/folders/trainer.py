"""The Trainer of Hugging Face saves the model, and next to it optimizer, scheduler and random generators."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, FolderSource, Mapping, Node, Part, Source
from ckptdoctor.formats.folders.gathering import Gathering, folder_of, known, size_of
from ckptdoctor.formats.folders.new_index import write_index
from ckptdoctor.formats.folders.weights import model_branch, weights_in

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

NAME = "Hugging Face Trainer checkpoint"

# branch → the files that may hold it: transformers.trainer.OPTIMIZER_NAME and its neighbours
_BRANCHES = (
    ("optimizer", ("optimizer.pt", "optimizer.bin")),
    ("scheduler", ("scheduler.pt",)),
    ("scaler", ("scaler.pt",)),
)
_RNG = re.compile(r"rng_state(?:_(\d+))?\.pth")


def examine(source: Source, head: bytes) -> Container | None:
    """Return the folder by ``trainer_state.json``."""
    folder = folder_of(source)
    files = _files(folder) if "trainer_state.json" in folder.names else []
    return known(folder, NAME, size_of(folder, files)) if files else None


def _files(folder: FolderSource) -> list[str]:
    weights = weights_in(folder)
    beside = [name for name in folder.names if _RNG.fullmatch(name)]
    others = [name for _, names in _BRANCHES for name in names if name in folder.names]
    return [*(weights.files if weights is not None else ()), *others, *beside]


def read(source: Source, container: Container) -> Checkpoint:
    """Return the model under ``model``, and a branch for each file next to it."""
    folder = folder_of(source)
    gathering = Gathering(folder)
    entries: list[tuple[Part, Node]] = [*model_branch(gathering)]
    for branch, names in _BRANCHES:
        name = next((each for each in names if each in folder.names), None)
        if name is not None:
            entries.append((branch, gathering.branch(name, (branch,))))
    entries += _rng(gathering)
    return gathering.checkpoint(container, Mapping("dict", tuple(entries)))


def _rng(gathering: Gathering) -> list[tuple[Part, Node]]:
    """Return the states of random generators: of one process, or of each rank by its number."""
    names = [name for name in gathering.folder.names if _RNG.fullmatch(name)]
    if names == ["rng_state.pth"]:
        return [("rng_state", gathering.branch(names[0], ("rng_state",)))]
    ranks = sorted([(int(match[1]), name) for name in names if (match := _RNG.fullmatch(name)) and match[1]])
    found: list[tuple[Part, Node]] = [(number, gathering.branch(name, ("rng_state", number))) for number, name in ranks]
    return [("rng_state", Mapping("dict", tuple(found)))] if found else []


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Return how to write a new index; nothing else is done in place."""
    return write_index(wanted, source)
