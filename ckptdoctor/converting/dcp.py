"""Converts to a folder of torch.distributed.checkpoint, which any number of processes load from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, KeyPath, Node, Role, Storage, Tensor, at, show_path, walk
from ckptdoctor.checkpoint import Mapping as Entries
from ckptdoctor.checkpoint.changed_trees import mapped, moved, tensors_in
from ckptdoctor.checkpoint.roots import beside
from ckptdoctor.checkpoint.source import Overlay
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.converting.choosing import doubled, require_torch, restored
from ckptdoctor.converting.folder import publish_folder
from ckptdoctor.converting.inputs import Inputs
from ckptdoctor.converting.proof import CopyTally, require_bytes
from ckptdoctor.converting.request import DCP, ConvertRequest
from ckptdoctor.edits.conversion import ConvertReport
from ckptdoctor.formats.compose import dcp
from ckptdoctor.formats.compose.dcp_flat import Flat, Steps
from ckptdoctor.formats.compose.sidecar import sidecar
from ckptdoctor.noun import noun
from ckptdoctor.prove.reopened import read_back, require_right, require_same
from ckptdoctor.wording import and_more
from ckptdoctor.writing import CopiedRanges, Literal, Part, Recipe

_FORMAT = ("format", "pt")
_EXTRA = "model.extra.json"
_LISTED = 3  # places that are named of what cannot be kept


def to_dcp(request: ConvertRequest, given: Inputs, root: KeyPath) -> ConvertReport:
    """Write what lies at ``root`` as a folder. Raises RefusedError with a list for what cannot be written."""
    tree, back = (given.tree, ()) if root else restored(given.tree, given.metadata)
    node = moved(at(tree, root), root, ())
    require_torch(node, root)
    made = dcp.layout(node, root, given.file, given.swapped)
    wanted = _wanted(made, given.swapped)
    texts = {key: text for key, text in given.metadata.items() if (key, text) not in (*back, _FORMAT)}
    tallies: list[CopyTally] = []
    parts = [*_extra(texts, request, given), *_parts(made, request, wanted, tallies)]
    seconds = publish_folder(parts, request.output, force=request.force, identity=given.identity)
    tensors = list(wanted.originals.values())
    models = [each for each in weights_among(wanted.contents.state_dicts) if each.role is Role.MODEL]
    return ConvertReport(
        sources=request.paths,
        output=request.output,
        source_format=given.format,
        format=DCP,
        files=((dcp.DATA, made.data.size), (dcp.METADATA, made.metadata.size)),
        tensors=len(tensors),
        nbytes=sum(each.nbytes for each in tensors),
        identical=tallies[0].identical,
        remade=tallies[0].remade,
        restored=back,
        doubled=doubled(tensors),
        sidecar=os.path.join(request.output, _EXTRA) if texts else None,
        kept=tuple([f"{key} of the metadata" for key in texts]),
        left_out=(*beside(given.tree, root), *_left_out(node, made.apart)),
        root=root,
        weights=models[0].path if len(models) == 1 else None,
        replaces_original=request.replaces,
        seconds=seconds,
    )


@noun
class _Wanted:
    """The result that reading the folder must give, and by their places in it the tensors with their elements."""

    contents: Checkpoint
    originals: dict[KeyPath, Tensor]
    swapped: bool


def _left_out(node: Node, apart: Flat) -> list[str]:
    """Contents that such a folder has no place for, as torch itself leaves them out."""
    found = []
    if apart.renamed:
        found.append(f"that keys are no text: {_places(apart.renamed)}")
    if any(isinstance(each, Entries) and each.attributes is not None for _, each in walk(node)):
        found.append("attributes of dicts (_metadata, the versions of modules)")
    return found


def _places(paths: Sequence[KeyPath]) -> str:
    return and_more(paths, _LISTED, say=show_path)


def _extra(texts: Mapping[str, str], request: ConvertRequest, given: Inputs) -> list[Part]:
    if not texts:
        return []
    data = sidecar(None, texts, {}, os.path.basename(given.paths[0]))
    return [Part(Recipe(given.file, (Literal(data),)), os.path.join(request.output, _EXTRA))]


def _wanted(made: dcp.Layout, swapped: bool) -> _Wanted:
    originals: dict[KeyPath, Tensor] = {}
    storages: list[Storage] = []

    def placed(node: Node, steps: Steps) -> Node:
        if not isinstance(node, Tensor):
            return node
        path = (*steps, *node.path[len(steps) :])
        size = (node.numel * node.dtype.bits + 7) // 8
        storages.append(Storage(f"{len(storages)}", size, node.dtype, "cpu", None))
        return replace(node, path=path, storage=storages[-1], values=None, chunks=())

    values: list[tuple[Steps, Node]] = []
    for each in made.values:
        steps = each.value.steps
        for tensor in tensors_in(each.value.node):
            place = (*steps, *tensor.path[len(steps) :])
            originals[place] = tensor
        values.append((steps, mapped(each.node, partial(placed, steps=steps))))
    tree = dcp.nested(values)
    contents = Checkpoint("", DCP, 0, tree, tuple(tensors_in(tree)), tuple(storages), find_state_dicts(tree))
    return _Wanted(contents, originals, swapped)


def _parts(made: dcp.Layout, request: ConvertRequest, wanted: _Wanted, tallies: list[CopyTally]) -> list[Part]:
    """Both files; they are proven together once the second is written."""
    files: dict[str, str] = {}

    def keep(path: str) -> None:
        files[dcp.DATA] = path

    def verify(path: str) -> None:
        tallies.append(_proven({**files, dcp.METADATA: path}, request.output, wanted, CopiedRanges(made.data)))

    return [
        Part(made.data, os.path.join(request.output, dcp.DATA), keep),
        Part(made.metadata, os.path.join(request.output, dcp.METADATA), verify),
    ]


def _proven(files: Mapping[str, str], output: str, wanted: _Wanted, copied: CopiedRanges) -> CopyTally:
    """The number of tensors that are ranges of the sources. Raises WriteError for anything unexpected."""
    with read_back(), closing(Overlay(output, files)) as folder:
        written = formats.read(folder, formats.examine(folder))
    require_right(next((note.message for note in written.notes), None))
    require_same(wanted.contents, written)
    tally = CopyTally()
    for tensor in written.tensors:
        place = tensor.storage.extent if tensor.storage is not None else None
        tally += require_bytes(wanted.originals[tensor.path], wanted.swapped, place, copied)
    return tally
