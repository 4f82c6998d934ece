"""Converts to safetensors, in one file or in shards with their index; what are no tensors goes into a file beside."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing

from ckptdoctor import formats
from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.converting.choosing import Chosen, chosen, doubled, entries_of, with_owners
from ckptdoctor.converting.folder import publish_folder
from ckptdoctor.converting.inputs import Inputs
from ckptdoctor.converting.proof import Checksums, CopyTally, require_bytes
from ckptdoctor.converting.request import DEFAULT_SHARD, ConvertRequest
from ckptdoctor.edits.conversion import ConvertReport
from ckptdoctor.errors import WriteError
from ckptdoctor.formats.compose import safetensors, shards
from ckptdoctor.formats.compose.safetensors import Entry
from ckptdoctor.formats.compose.sidecar import sidecar
from ckptdoctor.prove.reopened import read_back, require_right
from ckptdoctor.writing import CopiedRanges, Literal, Part, Recipe, publish_together

_FORMAT = {"format": "pt"}


def to_safetensors(request: ConvertRequest, given: Inputs, root: KeyPath, sharded: bool) -> ConvertReport:
    """Write the tensors below ``root`` as safetensors. Raises RefusedError for what takes a choice."""
    found = chosen(given.tree, root, request.root is not None, request.flatten, given.format)
    entries, tied = with_owners(entries_of(found.named), given.metadata, request.clone)
    files = _files(entries, request, sharded)
    tallies: list[CopyTally] = []
    with closing(Checksums([each.tensor for each in entries])) as sums:
        parts = [_part(shard, request, given, tied, sums, tallies, sharded) for shard in files]
        if len(files) > 1:
            index = Recipe(given.file, (Literal(shards.index_of(files)),))
            parts.append(Part(index, os.path.join(request.output, shards.INDEX)))
        extra = _extra(found, request, given, sharded)
        every = [*extra, *parts]
        if sharded:
            seconds = publish_folder(every, request.output, force=request.force, identity=given.identity)
        else:
            seconds = publish_together(every, force=request.force, identity=given.identity)[0].seconds
    tally = sum(tallies, CopyTally())
    return ConvertReport(
        sources=request.paths,
        output=request.output,
        source_format=given.format,
        format=request.target,
        files=tuple([(os.path.basename(part.output), part.recipe.size) for part in parts]),
        tensors=len(entries),
        nbytes=sum(each.nbytes for each in entries),
        identical=tally.identical,
        remade=tally.remade,
        tied=tied,
        doubled=doubled([each.tensor for each in entries]),
        sidecar=extra[0].output if extra else None,
        kept=found.kept,
        described=found.described,
        left_out=found.left_out,
        root=found.root,
        called=found.called,
        replaces_original=request.replaces,
        seconds=seconds,
    )


def _files(entries: Sequence[Entry], request: ConvertRequest, sharded: bool) -> list[shards.Shard]:
    if not sharded:
        return [shards.Shard(os.path.basename(request.output), tuple(entries))]
    return shards.split(entries, request.shard_size or DEFAULT_SHARD)


def _part(
    shard: shards.Shard,
    request: ConvertRequest,
    given: Inputs,
    tied: Sequence[tuple[str, str]],
    sums: Checksums,
    tallies: list[CopyTally],
    sharded: bool,
) -> Part:
    """One file of tensors, which is proven once it is written."""
    names = {entry.name for entry in shard.entries}
    recipe = safetensors.recipe(shard.entries, _metadata(given.metadata, tied, names), given.file, given.swapped)

    def verify(path: str) -> None:
        sums.require()
        tallies.append(_proven(path, shard.entries, recipe, given.swapped))

    return Part(recipe, os.path.join(request.output, shard.name) if sharded else request.output, verify)


def _extra(found: Chosen, request: ConvertRequest, given: Inputs, sharded: bool) -> list[Part]:
    """Contents that are not tensors, as a file of their own; none where there is nothing."""
    if found.rest is None:
        return []
    names = {tensor.path: name for name, tensor in found.named}
    data = sidecar(found.rest, {}, names, os.path.basename(request.original or given.paths[0]))
    output = os.path.join(request.output, "model.extra.json") if sharded else request.beside
    return [Part(Recipe(given.file, (Literal(data),)), output)]


def _metadata(own: Mapping[str, str], tied: Sequence[tuple[str, str]], names: set[str]) -> dict[str, str]:
    """The metadata of one file: what the source had, and other names of its tensors, as ``save_model`` notes them."""
    return {**_FORMAT, **own, **{alias: owner for alias, owner in tied if owner in names}}


def _proven(path: str, entries: Sequence[Entry], recipe: Recipe, swapped: bool) -> CopyTally:
    with read_back():
        written = formats.open_checkpoint(path)
    found = {tensor.key: tensor for tensor in written.tensors}
    if found.keys() != {each.name for each in entries} or len(written.tensors) != len(entries):
        require_right("it holds other names")
    copied = CopiedRanges(recipe)
    tally = CopyTally()
    for each in entries:
        got = found[each.name]
        if got.dtype.safetensors != safetensors.code_of(each.tensor) or got.shape != safetensors.shape_of(each.tensor):
            raise WriteError(f"{each.name} of the output has another dtype or shape; it was thrown away.")
        place = got.storage.extent if got.storage is not None else None
        tally += require_bytes(each.tensor, swapped, place, copied)
    return tally
