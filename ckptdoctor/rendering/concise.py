"""Prints one line a finding, for editors and for grep; and one where Ctrl-C came before the end."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import FileReport, Finding, Report
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.interrupted import interrupted, left_behind, not_begun


def file_report(report: FileReport) -> str:
    """Return ``path: CODE severity name: message [fix: --option]``, a line for each finding; "" for none."""
    return "\n".join(_lines(report))


def total(report: Report) -> str:
    """Return the lines that belong to none of the files; "" for nothing."""
    return "\n".join(filter(None, [escape(not_begun(report)), escape(left_behind(report))]))


def _lines(report: FileReport) -> Iterator[str]:
    path = escape(report.path)
    for finding in report.findings:
        yield f"{path}: {_line(finding)}"
    if report.interrupted:
        yield f"{path}: {interrupted(report)}"


def _line(finding: Finding) -> str:
    fix = f" [fix: {escape(' '.join(finding.fix.options))}]" if finding.fix is not None else ""
    return f"{finding.code} {finding.severity.value} {finding.name}: {escape(finding.message)}{fix}"
