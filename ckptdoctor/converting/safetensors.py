"""Converts to safetensors, in one file or in shards with their index; what are no tensors goes into a file beside."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.converting.choosing import Chosen, chosen, doubled, entries_of, with_owners
from ckptdoctor.converting.request import DEFAULT_SHARD, ConvertRequest
from ckptdoctor.converting.writing import Output, report_of
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.formats.fresh import safetensors, shards
from ckptdoctor.formats.fresh.safetensors import Entry
from ckptdoctor.formats.fresh.sidecar import sidecar

_FORMAT = {"format": "pt"}


def to_safetensors(request: ConvertRequest, wanted: Wanted, root: KeyPath, sharded: bool) -> Output:
    """The tensors below ``root`` as safetensors. Raises RefusedError for what takes a choice."""
    own = wanted.contents.metadata or {}
    found = chosen(wanted.contents.tree, root, request.root is not None, request.flatten, wanted.original.format)
    entries, tied = with_owners(entries_of(found.named), own, request.clone)
    tensors = tuple([each.tensor for each in entries])
    files = _files(entries, request, sharded)
    containers = []
    for each in files:
        metadata = _metadata(own, tied, {entry.name for entry in each.entries})
        made = safetensors.arranged(each.entries, metadata, wanted.original, wanted.file)
        containers.append((os.path.join(request.output, each.name) if sharded else request.output, made))
    report = replace(
        report_of(request, wanted, tensors),
        tied=tied,
        doubled=doubled(tensors),
        kept=found.kept,
        described=found.described,
        left_out=found.left_out,
        root=found.root,
        called=found.called,
    )
    index = (os.path.join(request.output, shards.INDEX), shards.index_of(files)) if len(files) > 1 else None
    return Output(tuple(containers), report, _extra(found, request, sharded), index, sharded, tensors)


def _files(entries: Sequence[Entry], request: ConvertRequest, sharded: bool) -> list[shards.Shard]:
    if not sharded:
        return [shards.Shard(os.path.basename(request.output), tuple(entries))]
    return shards.split(entries, request.shard_size or DEFAULT_SHARD)


def _extra(found: Chosen, request: ConvertRequest, sharded: bool) -> tuple[str, bytes] | None:
    """Contents that are not tensors, as a file of their own; None where there is nothing."""
    if found.rest is None:
        return None
    names = {tensor.path: name for name, tensor in found.named}
    output = os.path.join(request.output, "model.extra.json") if sharded else request.beside
    return output, sidecar(found.rest, {}, names, os.path.basename(request.paths[0]))


def _metadata(own: Mapping[str, str], tied: Sequence[tuple[str, str]], names: set[str]) -> dict[str, str]:
    """The metadata of one file: what the source had, and other names of its tensors, as ``save_model`` notes them."""
    return {**_FORMAT, **own, **{alias: owner for alias, owner in tied if owner in names}}
