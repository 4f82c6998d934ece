"""Writes the plan and the outcome of a repair as JSON, schema ``ckptdoctor/1``: fields are only ever added."""

from __future__ import annotations

from ckptdoctor.checkpoint import show_path
from ckptdoctor.edits.fix import Change, Step
from ckptdoctor.findings import Finding, Proof, RepairReport
from ckptdoctor.rendering.fix_text import left, left_at, next_step
from ckptdoctor.rendering.json import SCHEMA, dump, fix_of


def render(report: RepairReport, version: str) -> str:
    """Return a repair: ``status`` is "repaired", "planned" (nothing written) or "nothing" (nothing to repair)."""
    nothing = not report.steps and report.converts is None
    status = "nothing" if nothing else "planned" if report.proof is None else "repaired"
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "path": report.path,
            "output": None if nothing else report.output,
            "status": status,
            "message": None,
            "format": report.format,
            "converts": report.converts,
            "sidecar": report.conversion.sidecar if report.conversion is not None else None,
            "steps": [_step(step) for step in report.steps],
            "bytes": {"total": report.size, "new": report.new_bytes},
            "proof": _proof(report.proof) if report.proof is not None else None,
            "left": [_finding(each, left_at(report)) for each in left(report)],
            "next": next_step(report) if report.proof is not None or report.blocked else None,
            "loads": not report.blocked if report.next is not None else None,
            "seconds": round(report.seconds, 4),
        }
    )


def refused(path: str, message: str, version: str, status: str = "refused") -> str:
    """Return a repair that was refused, and why; or one that was "interrupted"."""
    head = {"schema": SCHEMA, "version": version, "path": path, "output": None, "status": status}
    return dump({**head, "message": message, "steps": [], "proof": None, "left": []})


def _step(step: Step) -> dict[str, object]:
    return {
        "label": step.label,
        "name": step.name or None,
        "title": step.title,
        "safety": step.safety.value,
        "changes": [_change(change) for change in step.changes],
    }


def _change(change: Change) -> dict[str, object]:
    return {
        "kind": change.kind,
        "place": show_path(change.place) if change.place is not None else None,
        "pairs": [list(pair) for pair in change.pairs],
        "counts": {noun: number for number, noun in change.counts},
    }


def _proof(proof: Proof) -> dict[str, object]:
    return {
        "storages": proof.storages,
        "identical": proof.identical,
        "shrunk": proof.shrunk,
        "remade": proof.remade,
        "inflated": proof.inflated,
        "computed": proof.computed,
        "not_compared": proof.elided,
    }


def _finding(finding: Finding, path: str) -> dict[str, object]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "fix": fix_of(finding.fix, path) if finding.fix is not None else None,
    }
