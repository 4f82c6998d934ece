"""Prints findings as workflow commands: GitHub shows them next to the files of a pull request.

Source: GitHub's documentation of workflow commands, and ``escapeData`` and ``escapeProperty`` of its actions toolkit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptdoctor.findings import FileReport, Finding, Report, Severity
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.interrupted import interrupted, left_behind, not_begun
from ckptdoctor.rendering.numbers import plural
from ckptdoctor.rendering.shell import fix_command, with_path

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def file_report(report: FileReport) -> str:
    """Return ``::error file=…,title=…::…``, a line for each finding; "" for none."""
    return "\n".join(_lines(report))


def total(report: Report) -> str:
    """Return lines about all files, for the log: how many there are, and what was not examined of which."""
    found = [finding.severity for file in report.files for finding in file.findings]
    counts = ", ".join([f"{found.count(each)} {_COMMANDS[each]}" for each in _COMMANDS])
    told = Counter([(each.what, each.why) for file in report.files for each in file.skipped])
    skipped = [f"{what} ({why}) of {plural(number, 'file')}" for (what, why), number in told.items()]
    lines = [f"{plural(len(report.files), 'file')}: {counts}"]
    lines += filter(None, [escape(not_begun(report)), escape(left_behind(report))])
    return "\n".join([*lines, *([f"Not examined: {escape('; '.join(skipped))}"] if skipped else [])])


def _lines(report: FileReport) -> Iterator[str]:
    if report.error is not None:
        yield _command("error", report.path, "cannot be examined", escape(report.error))
    for finding in report.findings:
        title = f"{finding.code} {finding.name}"
        yield _command(_COMMANDS[finding.severity], report.path, title, "\n".join(annotation(finding, report.path)))
    if report.interrupted:
        yield _command("warning", report.path, "interrupted", interrupted(report))


def _command(name: str, path: str, title: str, message: str) -> str:
    path = escape(path).removeprefix("./")  # GitHub goes by paths from the root of the repository
    return f"::{name} file={_property(path)},title={_property(escape(title))}::{_data(message)}"


def _data(text: str) -> str:
    """Return the text behind the colons; lines of their own stay such."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def annotation(finding: Finding, path: str) -> Iterator[str]:
    """Yield its lines: what is wrong, where it comes from, what repairs it, what to do otherwise."""
    yield escape(finding.message)
    if finding.cause:
        yield escape(with_path(finding.cause, path))
    if finding.fix is not None:
        yield f"Repair, {finding.fix.safety.value}: {escape(fix_command(path, finding.fix))}"
    if finding.advice:
        yield escape(with_path(finding.advice, path))
    yield from (escape(with_path(each, path)) for each in finding.commands)
