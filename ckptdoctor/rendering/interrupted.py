"""Says how far work came that Ctrl-C ended, and what a write that was killed left in a folder."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.checkpoint.progress import Progress
from ckptdoctor.findings import FileReport, Report
from ckptdoctor.rendering.numbers import plural, size
from ckptdoctor.wording import and_more

_NAMED = 3  # files of a list


def interrupted(report: FileReport) -> str:
    """Return “Interrupted: checksums 1.2 of 3.2 GB, values 1.2 of 3.2 GB. No findings so far.”."""
    found = plural(len(report.findings), "finding") if report.findings else "No findings"
    return f"Interrupted: {came_to(report.readings) or 'the headers are not done yet'}. {found} so far."


def came_to(readings: Iterable[Progress]) -> str:
    """Return “checksums done, values 1.2 of 3.2 GB”."""
    return ", ".join([f"{each.what} {'done' if each.complete else _part(each)}" for each in readings])


def _part(reading: Progress) -> str:
    done, _, unit = size(reading.done).partition(" ")
    total = size(reading.total)
    return f"{done} of {total}" if not reading.done or total.endswith(f" {unit}") else f"{done} {unit} of {total}"


def not_begun(report: Report) -> str:
    """Return “Interrupted before 3 files: a.pt, b.pt, c.pt.”; "" where each has a report."""
    some = report.not_begun
    return f"Interrupted before {plural(len(some), 'file')}: {and_more(some, _NAMED)}." if some else ""


def left_behind(report: Report) -> str:
    """Return the remains of killed writes in the folders that were searched; "" where there are none."""
    some = report.leftovers
    named = and_more(some, _NAMED, say=lambda each: f"{each.path} ({size(each.nbytes)})")
    them = "it" if len(some) == 1 else "them"
    return f"Left by a write that was killed: {named}. The next write to the folder removes {them}." if some else ""
