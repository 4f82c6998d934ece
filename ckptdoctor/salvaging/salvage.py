"""Saves what is whole of a file or a folder of shards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial

from ckptdoctor import formats
from ckptdoctor.checkpoint import FolderSource, NoteKind
from ckptdoctor.checkpoint.naming import stem_of
from ckptdoctor.checkpoint.source import Overlay
from ckptdoctor.errors import (
    CkptDoctorError,
    NotACheckpointError,
    RefusedError,
    UnreadableError,
    UsageError,
)
from ckptdoctor.findings import LostTensor, SalvageReport
from ckptdoctor.formats.folders import model_folder, sharded
from ckptdoctor.formats.folders.gathering import why, why_closed
from ckptdoctor.formats.folders.shards import SINGLE
from ckptdoctor.formats.folders.weights import Weights, weights_in
from ckptdoctor.formats.fresh.safetensors import index_text
from ckptdoctor.inplace.names import interrupted, told
from ckptdoctor.noun import field, noun, replace
from ckptdoctor.prove.same_contents import require_right
from ckptdoctor.repair.repair import repair, verify
from ckptdoctor.salvaging.checkpoint import Salvage, beside, plan_salvage
from ckptdoctor.wording import and_more, format_name, plural
from ckptdoctor.writing import Literal, Part, Recipe
from ckptdoctor.writing.folder import publish_folder


def salvage(path: str, output: str | None = None, *, force: bool = False) -> SalvageReport:
    """Write what is whole of the checkpoint at ``path`` to ``output`` (None: next to it, ``name.salvaged.ext``).

    Of a folder of shards it makes a folder. The output is verified before it gets its name; the original is never
    touched. Raises UnreadableError and NotACheckpointError for a file that is none, DamagedError where its headers are
    lost, RefusedError where no tensor is whole, and WriteError when the output could not be written.
    """
    if os.path.isdir(path):
        return salvage_folder(path, output, force=force)
    planned = plan_salvage(path, output or beside(path), force=force)
    proof = repair(planned.plan).proof
    return replace(planned.report, next=None if proof is None else proof.next)


# ---- saves what is whole of a folder of shards: each shard by itself, and a new index of what there is


_INDEXES = {"safetensors": "model.safetensors.index.json", "bin": "pytorch_model.bin.index.json"}
_REASONS = 3  # files of which is said why nothing of them can be saved
# what reading the new folder must not notice
_WRONG = frozenset({NoteKind.FILE_MISSING, NoteKind.FILE_DAMAGED, NoteKind.INDEX_WRONG, NoteKind.INDEX_LACKS})


@noun(frozen=False)
class _Folder:
    """What was found out of each shard: what will be written of it, or why nothing is."""

    path: str
    output: str
    weights: Weights
    saved: dict[str, Salvage] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def look(self) -> None:
        """Plan each shard. Reads every byte of them."""
        for name in self.weights.files:
            path = os.path.join(self.path, name)
            if name != os.path.basename(name):
                self.failed[name] = f"{name} is in another folder"
                continue
            try:
                planned = plan_salvage(path, os.path.join(self.output, name))
            except UnreadableError as error:
                missing = not os.path.lexists(path)
                closed = f"{name} cannot be opened: {why_closed(error)}"
                self.failed[name] = f"{name} is missing" if missing else closed
            except CkptDoctorError as error:
                self.failed[name] = f"{name}: {_why(path, error)}"
            else:
                self.saved[name] = planned
        if self.weights.index is None and self.weights.shards is not None:
            self.failed |= {name: f"{name} is missing" for name in self.weights.shards.missing}

    @property
    def where(self) -> dict[str, str]:
        """Each key that is whole, and its shard: the one that the index names, else the first that has it."""
        said = self.weights.index.weight_map if self.weights.index is not None else {}
        found: dict[str, str] = {}
        for name, each in self.saved.items():
            for tensor in each.plan.expected.tensors:
                if tensor.key not in found or said.get(tensor.key) == name:
                    found[tensor.key] = name
        return found


def _why(path: str, error: CkptDoctorError) -> str:
    """Return why nothing of a file can be saved: what it is instead, or what is wrong with it."""
    with formats.opened(path) as (_, container):
        return why(container, error)


def salvage_folder(path: str, output: str | None = None, *, force: bool = False) -> SalvageReport:
    """Write what is whole of the shards at ``path`` to the folder ``output`` (None: next to it, ``name.salvaged``).

    All files are verified before the folder gets its name. Raises as ``salvage`` does.
    """
    owner = interrupted(path)
    if owner is not None:
        raise RefusedError(told(path, owner))
    folder = _Folder(path, output or f"{stem_of(path)}.salvaged", _weights(path))
    if os.path.realpath(folder.output) == os.path.realpath(path):
        raise UsageError("The salvaged folder itself is never overwritten: give another one with -o.")
    folder.look()
    where = folder.where
    if not where:
        reasons = and_more(list(folder.failed.values()), _REASONS, between="; ", before="; and ")
        raise RefusedError(
            f"{path}: nothing can be recovered from its {plural(len(folder.weights.files), 'file')}: "
            f"{reasons or 'no tensor in them is intact'}."
        )
    files: dict[str, str] = {}
    kept = [name for name in folder.saved if name in where.values()]
    parts = [_part(name, folder.saved[name], files) for name in kept]
    if kept != [folder.weights.single] or kept[0] not in SINGLE:
        parts.append(_index(folder, where, kept, files))
    publish_folder(parts, folder.output, force=force, identity=None)
    return _report(folder, where, kept)


def _weights(path: str) -> Weights:
    with closing(FolderSource(path)) as folder:
        container = formats.examine(folder)
        weights = weights_in(folder)
    if container.format not in (sharded.NAME, model_folder.NAME) or weights is None:
        kind = f"is a {format_name(container.format)}" if container.format else "is not a sharded checkpoint"
        named = "" if container.format else container.guidance
        raise NotACheckpointError(
            f"{path} {kind}, and only folders of shards can be salvaged. {named or 'Name one of its files.'}"
        )
    return weights


def _part(name: str, each: Salvage, files: dict[str, str]) -> Part:
    assert each.plan.recipe is not None

    def proven(path: str) -> None:
        files[name] = path
        verify(path, each.plan)

    return Part(each.plan.recipe, each.plan.output, proven)


def _index(folder: _Folder, where: dict[str, str], kept: list[str], files: dict[str, str]) -> Part:
    own = folder.weights.index
    suffix = "safetensors" if kept[0].endswith("safetensors") else "bin"
    name = own.name if own is not None else _INDEXES[suffix]
    tensors = [tensor for file in kept for tensor in folder.saved[file].plan.expected.tensors]
    more = dict(own.metadata or {}) if own is not None else {}
    if "total_parameters" in more:
        more["total_parameters"] = sum(tensor.numel for tensor in tensors)
    text = index_text(where, sum(tensor.nbytes for tensor in tensors), more)
    recipe = Recipe(folder.saved[kept[0]].plan.request.path, (Literal(text),))
    return Part(recipe, os.path.join(folder.output, name), partial(_require, folder.output, name, files, set(where)))


def _require(output: str, name: str, files: dict[str, str], keys: set[str], path: str) -> None:
    """Read the folder as it will be. Raises WriteError unless it holds just these keys."""
    with closing(Overlay(output, {**files, name: path})) as folder:
        written = formats.read(folder, formats.examine(folder))
    wrong = next((note.message for note in written.notes if note.kind in _WRONG), None)
    other = {tensor.key for tensor in written.tensors} != keys
    require_right(wrong or ("it holds other keys" if other else None))


def _report(folder: _Folder, where: dict[str, str], kept: list[str]) -> SalvageReport:
    reports = [folder.saved[name].report for name in folder.saved]
    tensors = [each for name in kept for each in folder.saved[name].plan.expected.tensors]
    lost = {each.path: each for report in reports for each in report.lost if str(each.path[-1]) not in where}
    return SalvageReport(
        path=folder.path,
        output=folder.output,
        format=sharded.NAME,
        recovered=len(tensors),
        recovered_bytes=sum(each.nbytes for each in tensors),
        verified=sum(report.verified for report in reports),
        lost=(*lost.values(), *_gone(folder, where, {str(path[-1]) for path in lost})),
        lost_files=tuple(_lost_files(folder, where)),
        healed=tuple([replace(each, file=name) for name in kept for each in folder.saved[name].report.healed]),
        notes=tuple([f"{name}: {each}" for name in kept for each in folder.saved[name].report.notes]),
    )


def _lost_files(folder: _Folder, where: dict[str, str]) -> Iterator[str]:
    """Yield why nothing is saved of a file: not of one whose tensors were all found in others."""
    index = folder.weights.index
    elsewhere = set(index.files if index is not None else ())
    elsewhere -= {file for key, file in (index.weight_map.items() if index is not None else ()) if key not in where}
    yield from (reason for file, reason in folder.failed.items() if file not in elsewhere)


def _gone(folder: _Folder, where: dict[str, str], told: set[str]) -> Iterator[LostTensor]:
    """Yield what the index names and no shard holds; nothing else is known of it."""
    index = folder.weights.index
    for key, file in index.weight_map.items() if index is not None else ():
        if key not in where and key not in told:
            yield LostTensor((key,), "", (), 0, 0.0, folder.failed.get(file, f"{file} does not have it"))
