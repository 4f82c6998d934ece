"""The outcome of a conversion as JSON, schema ``ckptdoctor/1``: fields are only ever added."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.checkpoint import show_path
from ckptdoctor.edits.conversion import ConvertReport
from ckptdoctor.report.json import SCHEMA, dump


def render(report: ConvertReport, version: str) -> str:
    """What was written, what was proven of it, and what the target could not hold."""
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "paths": list(report.sources),
            "output": report.output,
            "status": "converted",
            "message": None,
            "source_format": report.source_format,
            "format": report.format,
            "files": [{"name": name, "bytes": nbytes} for name, nbytes in report.files],
            "tensors": report.tensors,
            "bytes": report.nbytes,
            "proof": {"identical": report.identical, "remade": report.remade},
            "root": show_path(report.root) if report.root else None,
            "called": report.called,
            "tied": dict(report.tied),
            "restored": dict(report.restored),
            "copied": report.doubled,
            "sidecar": report.sidecar,
            "kept": list(report.kept),
            "described": list(report.described),
            "left_out": list(report.left_out),
            "absent": list(report.absent),
            "twins": [{"path": each.one, "in": each.other, "tensors": each.number} for each in report.twins],
            "seconds": round(report.seconds, 4),
        }
    )


def refused(paths: Sequence[str], message: str, version: str, status: str = "refused") -> str:
    """A conversion that was refused, and why; or one that was "interrupted"."""
    head = {"schema": SCHEMA, "version": version, "paths": list(paths), "output": None, "status": status}
    return dump({**head, "message": message})
