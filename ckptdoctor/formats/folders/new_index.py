"""Writes a new index of shards, from what their headers say."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import FolderSource, NoteKind, Source, Tensor
from ckptdoctor.checkpoint.checkpoint import UNREAD
from ckptdoctor.edits import WriteIndex
from ckptdoctor.errors import CkptDoctorError, RefusedError
from ckptdoctor.formats.folders.gathering import Gathering, folder_of
from ckptdoctor.formats.folders.shards import LONGEST
from ckptdoctor.formats.folders.weights import Parts, Weights, weights_in
from ckptdoctor.formats.unrepairable import refusal

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

# what keeps an index from being written: something of the checkpoint is not there, or it is there twice
_IN_THE_WAY = UNREAD | {NoteKind.INDEX_LACKS, NoteKind.KEY_IN_TWO_FILES}


def write_index(wanted: Wanted, source: Source | None) -> Recipe:
    """Return how to write the new index. Raises RefusedError for every other edit, and where the shards do not tell."""
    from ckptdoctor.writing.recipe import Literal, Recipe

    names = {edit.name for edit in wanted.edits if isinstance(edit, WriteIndex)}
    others = any(not isinstance(edit, WriteIndex) for edit in wanted.edits)
    if source is None or len(names) != 1 or others:
        raise refusal(wanted.original)
    folder = folder_of(source)
    weights = weights_in(folder)
    if weights is None:
        raise refusal(wanted.original)
    (name,) = names
    try:
        text = json.dumps(_index(folder, name, sound_parts(folder, weights)), indent=2, sort_keys=True)
    except RecursionError as error:
        raise RefusedError(f"{name} is nested too deep to be kept in the new index; delete it first.") from error
    old = name if name in folder.names else weights.files[0]  # where there is none, the shards say whose it is
    return Recipe(os.path.join(folder.path, old), (Literal(f"{text}\n".encode()),))


def sound_parts(folder: FolderSource, weights: Weights) -> Parts:
    """Return what every shard holds. Raises RefusedError where one is missing, or has what another has."""
    gathering = Gathering(folder)
    parts = Parts(gathering, weights.files, weights.index, weights.shards)
    parts.compare()
    for note in gathering.notes:
        if note.kind in _IN_THE_WAY:
            raise RefusedError(f"{folder.path}: {note.message}, so a correct index cannot be written.")
    missing = weights.shards.missing if weights.index is None and weights.shards is not None else []
    if missing or not parts.read:
        raise RefusedError(f"{folder.path}: {missing[0] if missing else 'every shard'} is missing.")
    return parts


def _index(folder: FolderSource, name: str, parts: Parts) -> dict[str, object]:
    """Return the new index: what the old one says in addition to its table is kept."""
    old = _old(folder, name)
    where = {key: files[0] for key, files in parts.holders.items() if isinstance(key, str) and parts.belongs(key)}
    nodes = [parts.entries[file][key] for key, file in where.items()]
    tensors = [node for node in nodes if isinstance(node, Tensor)]
    said = old.get("metadata")
    metadata: dict[str, object] = dict(said) if isinstance(said, dict) else {}
    metadata["total_size"] = sum(tensor.nbytes for tensor in tensors)
    if "total_parameters" in metadata:
        metadata["total_parameters"] = sum(tensor.numel for tensor in tensors)
    return {**old, "metadata": metadata, "weight_map": where}


def _old(folder: FolderSource, name: str) -> dict[str, object]:
    try:
        source = folder.open(name)
        said = json.loads(source.read(0, source.size)) if source.size <= LONGEST else {}
    except (CkptDoctorError, ValueError, RecursionError):  # that is why it is written anew
        return {}
    return said if isinstance(said, dict) else {}
