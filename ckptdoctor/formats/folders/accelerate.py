"""``accelerate.Accelerator.save_state`` writes models, and next to them optimizers, schedulers and generators.

Source: ``accelerate.checkpointing.save_accelerator_state``. A second model, optimizer, … has a number in its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, FolderSource, Mapping, Node, Part, Source
from ckptdoctor.formats.folders.gathering import Gathering, folder_of, known, size_of
from ckptdoctor.formats.folders.new_index import write_index
from ckptdoctor.formats.folders.weights import model_branch, weights_in

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

NAME = "Accelerate checkpoint"

_RNG = re.compile(r"random_states_(\d{1,9})\.pkl")

# branch → the files that hold it; what the name has beside it, such as “_1”, stands in the branch as well
_BRANCHES = (
    re.compile(r"((?:model|pytorch_model)_\d{1,9})\.(?:safetensors|bin)"),
    re.compile(r"(optimizer(?:_\d{1,9})?)\.bin"),
    re.compile(r"(scheduler(?:_\d{1,9})?)\.bin"),
    re.compile(r"(sampler(?:_\d{1,9})?)\.bin"),
    re.compile(r"(dl_state_dict(?:_\d{1,9})?)\.bin"),
    re.compile(r"(scaler)\.pt"),
    re.compile(r"(custom_checkpoint_\d{1,9})\.pkl"),
)


def examine(source: Source, head: bytes) -> Container | None:
    """Return the folder by ``random_states_0.pkl`` next to weights or an optimizer."""
    folder = folder_of(source)
    if not any(_RNG.fullmatch(name) for name in folder.names) or "trainer_state.json" in folder.names:
        return None
    weights = weights_in(folder)
    if weights is None and "optimizer.bin" not in folder.names:
        return None
    return known(folder, NAME, size_of(folder, _files(folder)))


def _files(folder: FolderSource) -> list[str]:
    weights = weights_in(folder)
    beside = [name for name in folder.names if _RNG.fullmatch(name)]
    return [*(weights.files if weights is not None else ()), *[name for _, name in _others(folder)], *beside]


def _others(folder: FolderSource) -> Iterator[tuple[str, str]]:
    """Yield (branch, file) in the order of the branches and of the numbers in the names."""
    names = sorted(folder.names, key=lambda name: (len(name), name))
    for pattern in _BRANCHES:
        yield from ((match[1], name) for name in names if (match := pattern.fullmatch(name)))


def read(source: Source, container: Container) -> Checkpoint:
    """Return the model under ``model``, and a branch for each file next to it."""
    folder = folder_of(source)
    gathering = Gathering(folder)
    entries: list[tuple[Part, Node]] = [*model_branch(gathering)]
    entries += [(branch, gathering.branch(name, (branch,))) for branch, name in _others(folder)]
    entries.append(("random_states", Mapping("dict", tuple(_random(gathering)))))
    return gathering.checkpoint(container, Mapping("dict", tuple(entries)))


def _random(gathering: Gathering) -> Iterator[tuple[Part, Node]]:
    """Yield the states of the random generators of each process, by its number."""
    matches = [match for name in gathering.folder.names if (match := _RNG.fullmatch(name))]
    for match in sorted(matches, key=lambda match: int(match[1])):
        yield int(match[1]), gathering.branch(match[0], ("random_states", int(match[1])))


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Return how to write a new index; nothing else is done in place."""
    return write_index(wanted, source)
