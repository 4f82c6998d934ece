"""Converts to an archive of torch, out of any container that torch did not write as one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from ckptdoctor.checkpoint import ROOT, KeyPath, Node, at
from ckptdoctor.checkpoint.changed_trees import moved
from ckptdoctor.checkpoint.roots import beside
from ckptdoctor.converting.choosing import require_torch, restored
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.converting.writing import Output, report_of, weights_of
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.formats.fresh import torch_zip
from ckptdoctor.formats.fresh.sidecar import sidecar
from ckptdoctor.noun import noun

_FORMAT = ("format", "pt")


@noun
class Taken:
    """What torch's containers take: the contents, and of the metadata what was for other names, and what is left."""

    node: Node
    restored: tuple[tuple[str, str], ...]
    texts: Mapping[str, str]

    @property
    def kept(self) -> tuple[str, ...]:
        """What is said of the texts."""
        return tuple([f"{key} of the metadata" for key in self.texts])

    def beside(self, path: str, request: ConvertRequest) -> tuple[str, bytes] | None:
        """The file of the texts, to be called ``path``; None where there are none."""
        if not self.texts:
            return None
        return path, sidecar(None, self.texts, {}, os.path.basename(request.paths[0]))


def taken(wanted: Wanted, root: KeyPath) -> Taken:
    """What lies at ``root``. Raises RefusedError with a list for what cannot be written."""
    metadata = wanted.contents.metadata or {}
    tree, back = (wanted.contents.tree, ()) if root else restored(wanted.contents.tree, metadata)
    require_torch(at(tree, root), root)
    texts = {key: text for key, text in metadata.items() if (key, text) not in (*back, _FORMAT)}
    return Taken(moved(at(tree, root), root, ROOT), back, texts)


def to_torch(request: ConvertRequest, wanted: Wanted, root: KeyPath) -> Output:
    """What lies at ``root`` as an archive. Raises RefusedError with a list for what cannot be written."""
    found = taken(wanted, root)
    made = torch_zip.arranged(found.node, wanted.original, request.output, wanted.file)
    report = replace(
        report_of(request, wanted, made.contents.tensors),
        restored=found.restored,
        kept=found.kept,
        left_out=tuple(beside(wanted.contents.tree, root)),
        root=root,
        weights=weights_of(made.contents),
    )
    return Output(((request.output, made),), report, found.beside(request.beside, request))
