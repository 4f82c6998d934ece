"""DeepSpeed writes the model's states of each model-parallel rank, and ZeRO's partitions of each rank.

File names as ``DeepSpeedEngine._get_ckpt_name`` and its neighbours make them. Nothing is merged: of stage 0 to 2 the
16-bit weights are whole (``module``); of stage 3 every rank holds a slice of each parameter in flat tensors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, FolderSource, Mapping, Node, Part, Source
from ckptdoctor.errors import CkptDoctorError, UnreadableError
from ckptdoctor.formats.folders.gathering import Gathering, folder_of, known, size_of
from ckptdoctor.formats.folders.weights import weights_in
from ckptdoctor.formats.unrepairable import refusal

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

NAME = "DeepSpeed checkpoint"

_MODEL = re.compile(r"mp_rank_\d+_model_states\.pt")
_ZERO = re.compile(r"\w*zero_pp_rank_\d+_mp_rank_\d+_model_states\.pt")
_OPTIM = re.compile(r"\w+_optim_states\.pt")
_LAYER = re.compile(r"layer_\d+[-_]\w[\w-]*_states\.pt|expert_\d+_mp_rank_\d+_model_states\.pt")
_STEP = re.compile(r"global_step(\d+)/")


def examine(source: Source, head: bytes) -> Container | None:
    """Return the folder by the names of its files, or by ``latest``, which names the folder of the last step."""
    folder = folder_of(source)
    # the Trainer puts whole weights beside DeepSpeed's own folder: those are what people want
    if "trainer_state.json" in folder.names and weights_in(folder) is not None:
        return None
    files = _files(folder)
    return known(folder, NAME, size_of(folder, files)) if files else None


def _files(folder: FolderSource) -> list[str]:
    """Return the files of the checkpoint, those of the model first, each kind by its numbers."""
    for prefix in ("", _latest(folder)):
        names = folder.names if not prefix else _below(folder, prefix)
        for kinds in ((_MODEL, _ZERO, _LAYER, _OPTIM),):
            found = [
                f"{prefix}{name}" for kind in kinds for name in sorted(names, key=_natural) if kind.fullmatch(name)
            ]
            if any(_MODEL.fullmatch(name.rpartition("/")[2]) or "zero_pp_rank" in name for name in found):
                return list(dict.fromkeys(found))
    return []


def _latest(folder: FolderSource) -> str:
    """Return the folder of the step that ``latest`` names, else of the last one, or "" where there is none."""
    try:
        source = folder.open("latest")
        tag = source.read(0, min(source.size, 256)).decode("utf-8", "replace").strip()
    except CkptDoctorError:
        tag = ""
    if f"{tag}/" in folder.names:
        return f"{tag}/"
    steps = [name for name in folder.names if _STEP.fullmatch(name)]
    return max(steps, key=_natural, default="")


def _below(folder: FolderSource, prefix: str) -> tuple[str, ...]:
    if not prefix:
        return ()
    try:
        return folder.below(prefix).names
    except UnreadableError:  # not ours to read
        return ()


def _natural(name: str) -> list[tuple[int, str]]:
    """Return names by their numbers: rank 2 before rank 10."""
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"(\d{1,9})", name)]


def read(source: Source, container: Container) -> Checkpoint:
    """Return one rank's model states at the top where one has all of them, and a branch for each other file."""
    folder = folder_of(source)
    gathering = Gathering(folder)
    files = _files(folder)
    models = [name for name in files if _MODEL.fullmatch(name.rpartition("/")[2])]
    entries: list[tuple[Part, Node]] = []
    if len(models) == 1:
        tree = gathering.branch(models[0], ())
        entries += tree.entries if isinstance(tree, Mapping) else [(_branch(models[0]), tree)]
        files.remove(models[0])
    taken = {part for part, _ in entries}
    for name in files:
        branch = _branch(name)
        if branch not in taken:
            entries.append((branch, gathering.branch(name, (branch,))))
    return gathering.checkpoint(container, Mapping("dict", tuple(entries)))


def _branch(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".pt")


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Raise RefusedError: such a folder is not repaired in place."""
    raise refusal(wanted.original)
