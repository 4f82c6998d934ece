"""Converts to an archive of torch, out of any container that torch did not write as one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from ckptdoctor import formats
from ckptdoctor.checkpoint import ROOT, Checkpoint, KeyPath, Node, Role, Storage, Tensor, at
from ckptdoctor.checkpoint.changed_trees import mapped, moved, tensors_in
from ckptdoctor.checkpoint.roots import beside
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.converting.choosing import require_torch, restored
from ckptdoctor.converting.inputs import Inputs
from ckptdoctor.converting.proof import as_they_lie, require_stored
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.edits.conversion import ConvertReport
from ckptdoctor.formats.compose import torch_zip
from ckptdoctor.formats.compose.sidecar import sidecar
from ckptdoctor.formats.compose.torch_zip import Storages
from ckptdoctor.formats.suffixes import TORCH_ZIP
from ckptdoctor.prove.reopened import read_back, require_same
from ckptdoctor.writing import CopiedRanges, Literal, Part, Recipe, publish_together

_FORMAT = ("format", "pt")


def to_torch(request: ConvertRequest, given: Inputs, root: KeyPath) -> ConvertReport:
    """Write what lies at ``root`` as an archive. Raises RefusedError with a list for what cannot be written."""
    tree, back = (given.tree, ()) if root else restored(given.tree, given.metadata)
    require_torch(at(tree, root), root)
    node = mapped(moved(at(tree, root), root, ROOT), _as_torch)
    storages = Storages(given.swapped)
    recipe = torch_zip.recipe(node, torch_zip.name_of(request.output), given.file, storages)
    expected = _expected(node, storages, given)
    remade: list[int] = []

    def verify(path: str) -> None:
        remade.append(_proven(path, expected, storages, recipe))

    texts = {key: text for key, text in given.metadata.items() if (key, text) not in (*back, _FORMAT)}
    extra = _extra(texts, request, given)
    parts = [*extra, Part(recipe, request.output, verify)]
    written = publish_together(parts, force=request.force, identity=given.identity)
    models = [each for each in weights_among(expected.state_dicts) if each.role is Role.MODEL]
    return ConvertReport(
        sources=request.paths,
        output=request.output,
        source_format=given.format,
        format=TORCH_ZIP,
        files=((os.path.basename(request.output), recipe.size),),
        tensors=len(expected.tensors),
        nbytes=sum(each.nbytes for each in expected.tensors),
        identical=len(expected.tensors) - remade[0],
        remade=remade[0],
        restored=back,
        sidecar=extra[0].output if extra else None,
        kept=tuple([f"{key} of the metadata" for key in texts]),
        left_out=tuple(beside(given.tree, root)),
        root=root,
        weights=models[0].path if len(models) == 1 else None,
        replaces_original=request.replaces,
        seconds=written[0].seconds,
    )


def _as_torch(node: Node) -> Node:
    return torch_zip.torch_tensor(node) if isinstance(node, Tensor) else node


def _extra(texts: dict[str, str], request: ConvertRequest, given: Inputs) -> Sequence[Part]:
    if not texts:
        return ()
    data = sidecar(None, texts, {}, os.path.basename(given.paths[0]))
    return (Part(Recipe(given.file, (Literal(data),)), request.beside),)


def _expected(node: Node, storages: Storages, given: Inputs) -> Checkpoint:
    """The contents that the output must hold: every tensor on the storage that it is to get."""

    made: dict[str, Storage] = {}

    def placed(each: Node) -> Node:
        if not isinstance(each, Tensor):
            return each
        key, _, _ = storages.of(each)
        storage = made.setdefault(key, Storage(key, storages.found[int(key)].nbytes, each.dtype, "cpu", None))
        return replace(each, storage=storage, values=None, chunks=())

    tree = mapped(node, placed)
    return Checkpoint(
        path="",
        format=TORCH_ZIP,
        size=0,
        tree=tree,
        tensors=tuple(tensors_in(tree)),
        storages=tuple(made.values()),
        state_dicts=find_state_dicts(tree),
    )


def _proven(path: str, expected: Checkpoint, storages: Storages, recipe: Recipe) -> int:
    """The number of tensors on storages that are not ranges of the sources. Raises WriteError for anything else."""
    with read_back():
        written = formats.open_checkpoint(path)
    require_same(expected, written)
    copied = CopiedRanges(recipe)
    places = {storage.key: storage.extent for storage in written.storages}
    made = set()
    for each in storages.found:
        direct = as_they_lie(each.pieces, swapped=False) if each.pieces is not None else None
        if require_stored(each.data, direct, places.get(each.key), copied):
            made.add(each.key)
    return sum(each.storage is not None and each.storage.key in made for each in expected.tensors)
