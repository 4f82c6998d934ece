"""Megatron-LM writes a folder for each tensor- and pipeline-parallel rank, which is shown as what it is.

Nothing is merged: ``mp_rank_01_003`` is the second slice of every matrix in the fourth stage of the pipeline.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, FolderSource, Mapping, Node, Part, Source
from ckptdoctor.errors import CkptDoctorError, UnreadableError
from ckptdoctor.formats.folders.gathering import Gathering, folder_of, known, size_of, unread
from ckptdoctor.formats.unrepairable import refusal

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

NAME = "Megatron checkpoint"

_TRACKER = "latest_checkpointed_iteration.txt"
_RANK = re.compile(r"mp_rank_\d{2,3}(?:_\d{3}){0,2}/")
_FILES = ("model_optim_rng.pt", "model_rng.pt")


def examine(source: Source, head: bytes) -> Container | None:
    """Return the folder by the folders of its ranks, or by the file that names the last iteration."""
    folder = folder_of(source)
    if _TRACKER not in folder.names and not any(map(_RANK.fullmatch, folder.names)):
        return None
    prefix, names = _step(folder)
    files = _files(folder, prefix, names)
    container = known(folder, NAME, size_of(folder, files))
    if files:
        return container
    if ".metadata" in names:
        return unread(container, f"The checkpoint itself is in {prefix.rstrip('/')}: name that folder.")
    return unread(container, f"{_TRACKER} does not name an iteration whose files are here.")


def _step(folder: FolderSource) -> tuple[str, tuple[str, ...]]:
    """Return the folder of the iteration that was saved last ("" where the ranks are here), and the names in it."""
    if any(map(_RANK.fullmatch, folder.names)):
        return "", folder.names
    try:
        source = folder.open(_TRACKER)
        said = source.read(0, min(source.size, 64)).decode("ascii", "replace").strip()
    except CkptDoctorError:
        return "", ()
    wanted = f"iter_{int(said):07d}/" if said.isascii() and said.isdigit() else f"{said}/"
    if wanted not in folder.names:
        return "", ()
    try:
        return wanted, folder.below(wanted).names
    except UnreadableError:  # not ours to read
        return wanted, ()


def _files(folder: FolderSource, prefix: str, names: tuple[str, ...]) -> list[str]:
    found = []
    for rank in filter(_RANK.fullmatch, names):
        try:
            inside = folder.below(f"{prefix}{rank}").names
        except UnreadableError:
            continue
        found += [f"{prefix}{rank}{name}" for name in inside if name in _FILES or name.endswith("_optim.pt")]
    return found


def read(source: Source, container: Container) -> Checkpoint:
    """Return what the only rank holds, or a branch for each."""
    folder = folder_of(source)
    gathering = Gathering(folder)
    files = _files(folder, *_step(folder))
    if len(files) == 1:
        return gathering.checkpoint(container, gathering.branch(files[0], ()))
    entries: list[tuple[Part, Node]] = []
    taken: set[str] = set()
    for name in files:
        *_, rank, file = name.split("/")
        branch = rank if rank not in taken else f"{rank}/{file}"
        taken.add(branch)
        entries.append((branch, gathering.branch(name, (branch,))))
    return gathering.checkpoint(container, Mapping("dict", tuple(entries)))


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Raise RefusedError: such a folder is not repaired in place."""
    raise refusal(wanted.original)
