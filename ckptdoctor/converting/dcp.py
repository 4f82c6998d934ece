"""Converts to a folder of torch.distributed.checkpoint, which any number of processes load from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from ckptdoctor.checkpoint import KeyPath, Node, show_path, walk
from ckptdoctor.checkpoint import Mapping as Entries
from ckptdoctor.checkpoint.roots import beside
from ckptdoctor.converting.choosing import doubled
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.converting.torch import taken
from ckptdoctor.converting.writing import Output, report_of, weights_of
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.formats.fresh import dcp
from ckptdoctor.formats.fresh.dcp_flat import Flat, flat
from ckptdoctor.wording import and_more

_EXTRA = "model.extra.json"
_LISTED = 3  # places that are named of what cannot be kept


def to_dcp(request: ConvertRequest, wanted: Wanted, root: KeyPath) -> Output:
    """What lies at ``root`` as a folder. Raises RefusedError with a list for what cannot be written."""
    found = taken(wanted, root)
    apart = flat(found.node, root)
    made = dcp.arranged(apart, wanted.original, wanted.file)
    tensors = [stored.shown for stored in made.stored.values() if stored.shown is not None]
    report = replace(
        report_of(request, wanted, tensors),
        restored=found.restored,
        doubled=doubled(tensors),
        kept=found.kept,
        left_out=(*beside(wanted.contents.tree, root), *_left_out(found.node, apart)),
        root=root,
        weights=weights_of(made.contents),
    )
    extra = found.beside(os.path.join(request.output, _EXTRA), request)
    return Output(((request.output, made),), report, extra, folder=True)


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
