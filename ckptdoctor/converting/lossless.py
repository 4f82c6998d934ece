"""Converts what torch wrote to the archive that it writes today, by editing it: everything in it stays what it was."""

from __future__ import annotations

import os
from dataclasses import replace

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, KeyPath, Role
from ckptdoctor.checkpoint.roots import beside
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.converting.inputs import Inputs
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.edits.conversion import ConvertReport
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.sharding import whole_dtensors
from ckptdoctor.formats.outputs import TORCH_ZIP
from ckptdoctor.prove.reopened import read_back, require_same
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.writing import Copy, Recipe, Written, publish

# the rules whose cures make an archive of a legacy file, and plain tensors of DTensors
_LEGACY_FORMAT, _DTENSORS = "C105", "X810"


def lossless(request: ConvertRequest, given: Inputs, root: KeyPath) -> ConvertReport:
    """Write the archive: the contents, or those at ``root``, with the device tags and objects that they have."""
    wrapped = whole_dtensors(given.checkpoints[0]) is not None
    if given.format == TORCH_ZIP and not root and not wrapped:
        return _copied(request, given)
    codes = [*([_LEGACY_FORMAT] if given.format != TORCH_ZIP else []), *([_DTENSORS] if wrapped else [])]
    selection = Selection(tuple(codes)) if codes else Selection()
    named = FixRequest(
        path=request.paths[0], output=request.output, root=request.root, selection=selection, force=request.force
    )
    planned = replace(plan(named), converts=None)  # whatever the output is called
    outcome = repair(planned)
    if outcome.written is None:
        raise RefusedError(
            f"{request.paths[0]}: nothing in it can be rewritten, because torch refuses the file as well; "
            "ckptdoctor check says why."
        )
    return _report(request, given, planned.expected, root, outcome.written)


def _copied(request: ConvertRequest, given: Inputs) -> ConvertReport:
    """The archive is one already: the same bytes under another name."""
    original = given.checkpoints[0]

    def verify(path: str) -> None:
        with read_back():
            require_same(original, formats.open_checkpoint(path))

    size = given.sources[0].size
    written = publish(
        Recipe(given.file, (Copy(0, size),)),
        request.output,
        force=request.force,
        verify=verify,
        identity=given.identity,
    )
    return _report(request, given, original, (), written)


def _report(
    request: ConvertRequest, given: Inputs, contents: Checkpoint, root: KeyPath, written: Written
) -> ConvertReport:
    models = [each for each in weights_among(contents.state_dicts) if each.role is Role.MODEL]
    return ConvertReport(
        sources=request.paths,
        output=request.output,
        source_format=given.format,
        format=TORCH_ZIP,
        files=((os.path.basename(request.output), written.nbytes),),
        tensors=len(contents.tensors),
        nbytes=sum(each.nbytes for each in contents.tensors),
        identical=len(contents.tensors),
        remade=0,
        left_out=tuple(beside(given.tree, root)),
        root=root,
        weights=models[0].path if len(models) == 1 else None,
        replaces_original=request.replaces,
        seconds=written.seconds,
    )
