"""Tells what loads a file as it is: by what torch's own reader allows, and never promised beyond that."""

from __future__ import annotations

import os.path
import sys
from collections.abc import Iterable

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Container, NoteKind, Source
from ckptdoctor.edits import MoveToCpu
from ckptdoctor.edits.applied.apply_edits import apply
from ckptdoctor.edits.applied.moving import moved_tensors
from ckptdoctor.edits.applied.wanted import wanted_of
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.facts.devices import CPU
from ckptdoctor.facts.globals import (
    NEEDS_IMPORT,
    blocked_globals,
    dangerous,
    is_allowed,
    is_standard,
    modern,
    package,
)
from ckptdoctor.findings import Finding, Loader, NextStep, Severity
from ckptdoctor.formats.advice import converted
from ckptdoctor.formats.weights_only import refusal
from ckptdoctor.repair.weights_only import weights_only_edits

_ZIP, _LEGACY, _SAFETENSORS = "torch zip", "torch legacy", "safetensors"
# errors that keep a file from being read: of the file, its container and its pickles, and of devices that are not there
_BLOCKING = ("C", "F", "P", "M", "D605", "A712")
_PACKED = "C102"  # it is packed in an archive: its repair unpacks it
_SCRIPT = "C107"  # TorchScript; as a remark: a server wants it there
_NAME = "C101"  # the name of the file, by which torch.load leaves it to safetensors, and which that does not look at
_REFUSED = "torch rejects"  # how the notes on an archive word what torch does not read; others are harmless
_GRADIENTS = "A712"  # torch makes such a tensor, and then may not give it its values
_UNREADABLE = "C105"  # as an error it says that torch cannot read what torch wrote in its old format


def next_step(path: str, checkpoint: Checkpoint, findings: Iterable[Finding], refused: str) -> NextStep:
    """Return what to do with the file at ``path``, of which these are the findings.

    ``refused`` is what ``weights_only_refusal`` says of it.
    """
    findings = list(findings)
    errors = [each.code for each in findings if each.severity is Severity.ERROR]
    blocking = [code for code in errors if code.startswith(_BLOCKING)]
    if checkpoint.format == _SAFETENSORS and _PACKED not in blocking:
        return NextStep(Loader.NONE if set(blocking) - {_NAME} else Loader.SAFETENSORS)
    if _PACKED in blocking:
        return NextStep(Loader.FIX, refused, (f"--select {_PACKED}",))
    if checkpoint.format not in (_ZIP, _LEGACY):
        meant = {each.code for each in findings if each.severity is Severity.INFO} & {_SCRIPT}
        if os.path.isdir(path) or not checkpoint.tensors or meant:
            return NextStep(Loader.OTHER)
        return NextStep(Loader.CONVERT, refused, (converted(path),))
    notes = [each.message for each in checkpoint.notes if each.kind is NoteKind.ZIP_UNUSUAL]
    odd = next((message for message in notes if _REFUSED in message), None)
    if odd is not None:
        return NextStep(Loader.OURS, odd)
    if _GRADIENTS in blocking and not refused:
        said = "a leaf Variable that requires grad is being used in an in-place operation"
        return NextStep(Loader.CONVERT, said, (converted(path),))
    if not refused and not blocking:
        away = any(each.device != CPU for each in checkpoint.storages)
        return NextStep(Loader.TORCH_ON_CPU if away else Loader.TORCH)
    if any(code.startswith(("C", "F")) and code != _UNREADABLE for code in blocking):
        return NextStep(Loader.NONE, refused)
    return _roundabout(path, checkpoint, refused)


def _roundabout(path: str, checkpoint: Checkpoint, refused: str) -> NextStep:
    """Return what to do with a file that is sound, and that torch refuses."""
    if any(moved_tensors(checkpoint, MoveToCpu())):
        return NextStep(Loader.FIX, refused, ("--to-cpu",))
    named = [modern(each.module, each.name) for each in checkpoint.globals]
    others = [".".join(name) for name in named if not is_allowed(*name)]
    if dangerous(checkpoint.globals) or any(each in NEEDS_IMPORT for each in others):
        return NextStep(Loader.OURS, refused)
    if _converts(path, checkpoint):
        return NextStep(Loader.FIX, refused, ("--weights-only-safe",))
    known = all((is_standard(each) and _is_there(each)) or package(each) in ("numpy", "torch") for each in others)
    return NextStep(Loader.TRUSTED if others and known else Loader.OURS, refused)


def _is_there(name: str) -> bool:
    """Return whether a module that is loaded by now has this name; of others, which are not imported, it may have."""
    module, _, found = name.rpartition(".")
    return module not in sys.modules or hasattr(sys.modules[module], found)


def _converts(path: str, checkpoint: Checkpoint) -> bool:
    """Return whether --weights-only-safe makes torch load the file: the repair is tried, and nothing is written."""
    try:
        edits = weights_only_edits(checkpoint)
        if not edits or blocked_globals(apply(checkpoint, edits)):
            return False
        with formats.opened(path) as (source, _):
            formats.write(wanted_of(checkpoint, edits), source)
    except CkptDoctorError:  # it cannot be said, or not be written
        return False
    return True


def weights_only_refusal(source: Source, container: Container) -> str:
    """Return why ``torch.load(weights_only=True)`` of torch 2.13 refuses the pickles of a file.

    It is "" where it takes them.
    """
    return refusal(source, container, _allowed)


def _allowed(module: str, name: str) -> str | None:
    found = modern(module, name)
    return ".".join(found) if is_allowed(*found) else None
