"""What is still wrong after a repair, and where: for every way of telling it."""

from __future__ import annotations

from ckptdoctor.edits import WriteIndex
from ckptdoctor.findings import Finding, RepairReport


def left(report: RepairReport) -> tuple[Finding, ...]:
    """What check finds in the output; where nothing was written, what was to be cured and is not."""
    return report.proof.findings if report.proof is not None else report.left


def left_at(report: RepairReport) -> str:
    """The path that a command must name to repair what is left: the output, or else the original.

    The output of a repaired folder is only its index: the folder is what is repaired.
    """
    return report.output if report.proof is not None and index_name(report) is None else report.path


def index_name(report: RepairReport) -> str | None:
    """The name of the index that was written for a folder; None for every other repair."""
    return next((each.name for step in report.steps for each in step.edits if isinstance(each, WriteIndex)), None)
