"""Writes the report as JSON, schema ``ckptdoctor/1``: fields are only ever added."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ckptdoctor.checkpoint import show_path
from ckptdoctor.checkpoint.progress import Progress
from ckptdoctor.edits import Fix
from ckptdoctor.findings import Coverage, FileReport, Finding, Location, Report, Severity
from ckptdoctor.rendering.numbers import count
from ckptdoctor.rendering.shell import fix_command, with_path
from ckptdoctor.rendering.summary import Summary, summarise

SCHEMA = "ckptdoctor/1"
_PRINTABLE_BITS = 1024  # longer integers are written as text ("2^4096"): many JSON readers cannot hold them


def render(report: Report, version: str, statistics: bool = False) -> str:
    """Return the whole report. Keys are the true text; everything outside ASCII is escaped, lone surrogates too."""
    findings = [finding for file in report.files for finding in file.findings]
    document: dict[str, object] = {
        "schema": SCHEMA,
        "version": version,
        "files": [_file(file) for file in report.files],
        "interrupted": report.interrupted,
        "not_begun": list(report.not_begun),
        "leftovers": [{"path": each.path, "bytes": each.nbytes} for each in report.leftovers],
        "summary": {each.value: sum(found.severity is each for found in findings) for each in reversed(Severity)},
    }
    if statistics:
        codes = sorted({finding.code for finding in findings})
        document["statistics"] = {code: sum(found.code == code for found in findings) for code in codes}
    return dump(document)


def dump(document: object) -> str:
    """Return ``document`` as ASCII JSON text."""
    return json.dumps(document, indent=2, allow_nan=False)


def _file(report: FileReport) -> dict[str, object]:
    container, checkpoint = report.container, report.checkpoint
    return {
        "path": report.path,
        "format": container.format if container is not None else None,
        "summary": summary(summarise(checkpoint)) if checkpoint is not None else None,
        "findings": [_finding(finding, report.path) for finding in report.findings],
        "skipped": [{"what": each.what, "why": each.why} for each in report.skipped],
        "coverage": _coverage(report.coverage) if report.coverage is not None else None,
        "error": report.error,
        "bytes_read": report.bytes_read,
        "interrupted": report.interrupted,
        "read": [reading(each) for each in report.readings],
        "seconds": round(report.seconds, 4),
    }


def reading(each: Progress) -> dict[str, object]:
    """Return the progress of one part of the work, in bytes."""
    return {"what": each.what, "done": each.done, "total": each.total, "complete": each.complete}


def summary(figures: Summary) -> dict[str, object]:
    """Return the ``summary`` object of one file."""
    return {
        "tensors": figures.tensors,
        "parameters": bounded(figures.parameters),
        "bytes": figures.bytes,
        "dtypes": figures.dtypes,
        "devices": figures.devices,
        "globals": list(figures.globals),
    }


def _finding(finding: Finding, path: str) -> dict[str, object]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "cause": with_path(finding.cause, path),
        "torch_says": list(finding.torch_says),
        "advice": with_path(finding.advice, path),
        "commands": [with_path(each, path) for each in finding.commands],
        "keys": [show_path(key) for key in finding.keys],
        "location": _location(finding.location),
        "fix": fix_of(finding.fix, path) if finding.fix is not None else None,
    }


def _location(location: Location) -> dict[str, object]:
    return {
        "path": show_path(location.path) if location.path is not None else None,
        "member": location.member,
        "offset": location.offset,
        "length": location.length,
    }


def fix_of(fix: Fix, path: str) -> dict[str, object]:
    """Return a fix of the file at ``path``, with the command that applies it."""
    return {"title": fix.title, "safety": fix.safety.value, "command": fix_command(path, fix), "option": fix.option}


def _coverage(coverage: Coverage) -> dict[str, object]:
    return {
        "reference": coverage.reference,
        "told": coverage.told,
        "state_dict": show_path(coverage.state_dict),
        "keys": coverage.keys,
        "total_keys": coverage.total_keys,
        "parameters": bounded(coverage.parameters),
        "total_parameters": bounded(coverage.total_parameters),
        "steps": [
            {"title": step.title, "code": step.code, "keys": step.keys, "parameters": bounded(step.parameters)}
            for step in coverage.steps
        ],
    }


def bounded(number: int) -> int | str:
    """Return the integer, or its order of magnitude as text when it is too long to print."""
    return number if number.bit_length() <= _PRINTABLE_BITS else count(number)


def shape(sizes: Sequence[int]) -> list[int | str]:
    """Return the sizes of a tensor's dimensions."""
    return [bounded(each) for each in sizes]
