"""A finding as the text that other programs show beside a file: on GitHub, or wherever SARIF is read."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Finding
from ckptdoctor.report.escape import escape
from ckptdoctor.report.shell import fix_command, with_path


def annotation(finding: Finding, path: str) -> Iterator[str]:
    """Its lines: what is wrong, where it comes from, what repairs it, what to do otherwise."""
    yield escape(finding.message)
    if finding.cause:
        yield escape(with_path(finding.cause, path))
    if finding.fix is not None:
        yield f"Repair, {finding.fix.safety.value}: {escape(fix_command(path, finding.fix))}"
    if finding.advice:
        yield escape(with_path(finding.advice, path))
    yield from (escape(with_path(each, path)) for each in finding.commands)
