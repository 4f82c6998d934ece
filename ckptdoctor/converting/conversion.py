"""Converts checkpoints: any container that can be read to torch, to safetensors, or to a distributed one."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from ckptdoctor.checkpoint import ROOT, KeyPath
from ckptdoctor.checkpoint.roots import find_root
from ckptdoctor.converting.inputs import Inputs, inputs
from ckptdoctor.converting.request import DCP, ConvertRequest
from ckptdoctor.converting.twins import twins
from ckptdoctor.edits.conversion import ConvertReport
from ckptdoctor.formats.outputs import SHARDED, TORCH_ZIP

# what torch wrote is edited where it stands, so that objects, device tags and checksums stay as they are
_LOSSLESS = ("torch zip", "torch legacy")


def convert(request: ConvertRequest) -> ConvertReport:
    """Write the output, verified; what was read stays as it is.

    Raises UnreadableError, NotACheckpointError and DamagedError for the sources, UsageError for a bad option,
    RefusedError with a list for what the target cannot hold, and WriteError; then nothing has changed.
    """
    started = perf_counter()
    with inputs(request.paths, request.root, request.names) as given:
        root = ROOT if request.root is None else find_root(given.tree, request.root)
        found = twins(request, given)
        report = _written(request, given, root)
        return replace(report, absent=given.absent, twins=found, seconds=perf_counter() - started)


def _written(request: ConvertRequest, given: Inputs, root: KeyPath) -> ConvertReport:
    target = request.target
    if target == DCP:
        from ckptdoctor.converting.dcp import to_dcp

        return to_dcp(request, given, root)
    if target != TORCH_ZIP:
        from ckptdoctor.converting.safetensors import to_safetensors

        return to_safetensors(request, given, root, sharded=target == SHARDED)
    if len(request.paths) == 1 and given.format in _LOSSLESS and not any(request.names):
        from ckptdoctor.converting.lossless import lossless

        return lossless(request, given, root)
    from ckptdoctor.converting.torch import to_torch

    return to_torch(request, given, root)
