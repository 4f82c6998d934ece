"""Writes the report that a tired person reads: what the file is, what is wrong, why, and the command to repair it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint.process import complete
from ckptdoctor.findings import Coverage, FileReport, Finding, Report, Severity
from ckptdoctor.rendering.contents import header, place, table
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.interrupted import interrupted, left_behind, not_begun
from ckptdoctor.rendering.numbers import count, plural, size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.shell import fix_command, with_path
from ckptdoctor.rendering.wrapping import abridged, columns, joined, wrapped
from ckptdoctor.wording import and_so_on, beyond, percent

_KEYS = 4  # keys named in a finding before the rest is counted
_KEY = 72  # characters of one key
_LINE = 400  # characters of one line that torch would print


def file_report(report: FileReport, paint: Paint | None = None, width: int | None = None) -> str:
    """Return the report on one file. ``width`` is the number of columns to fit into (None: as wide as it gets)."""
    return "\n".join(_file(report, paint or Paint(), width))


def total(report: Report, paint: Paint | None = None) -> str:
    """Return lines about all files: how many findings there are in several, and what belongs to none."""
    return "\n".join(filter(None, [_over_all(report, paint), escape(not_begun(report)), escape(left_behind(report))]))


def _over_all(report: Report, paint: Paint | None) -> str:
    if len(report.files) + len(report.not_begun) < 2:
        return ""
    paint = paint or Paint()
    findings = [finding for file in report.files for finding in file.findings]
    unread = sum(file.error is not None for file in report.files)
    pieces = [
        _counted(findings, paint) or ("no findings so far" if report.interrupted else "no findings"),
        *([f"{count(unread)} could not be examined"] if unread else []),
    ]
    return f"{plural(len(report.files), 'file')}: {', '.join(pieces)}"


def _file(report: FileReport, paint: Paint, width: int | None) -> Iterator[str]:
    first, *more = joined(header(report), width)
    yield paint.strong(first)
    yield from map(paint.strong, more)
    if report.error is not None:
        yield from _severe(wrapped(escape(report.error), width, "  "), paint)
    if report.checkpoint is not None and (report.findings or report.coverage):
        for line in table(report.checkpoint):
            yield from (paint.dim(each) for each in wrapped(line, width, "  ", " " * 13))
    if report.coverage is not None:
        yield ""
        yield from _coverage(report.coverage, report.findings, width)
        yield from _chain(report.coverage, report.path, paint)
    for finding in report.findings:
        yield ""
        yield from _finding(finding, report.path, paint, width)
    if report.findings:
        yield ""
        yield from _closing(report, paint, width)
    yield from (paint.dim(line) for line in wrapped(_examined(report), width, "", "  "))


def _severe(lines: Iterable[str], paint: Paint) -> Iterator[str]:
    return (paint.severity(Severity.ERROR, line) for line in lines)


def _finding(finding: Finding, path: str, paint: Paint, width: int | None) -> Iterator[str]:
    title = f"{finding.severity.value} {finding.code} {finding.name} · {escape(finding.message)}"
    first, *more = wrapped(title, width, "", "  ")
    yield first.replace(finding.severity.value, paint.severity(finding.severity), 1)
    yield from more
    for text in filter(None, (finding.cause, *_where(finding))):
        yield from wrapped(escape(text), width, "  ", "    " if text.startswith("keys: ") else None)
    for line in finding.torch_says:
        yield from wrapped(abridged(escape(line), _LINE), width, "    ", "      ")
    if finding.fix is not None:
        label = f"  repair, {finding.fix.safety.value}:   "
        yield from _command(label, fix_command(path, finding.fix), paint, width)
    if finding.advice:
        yield from wrapped(escape(with_path(finding.advice, path)), width, "  ")
    yield from (f"    {paint.accent(escape(with_path(each, path)))}" for each in finding.commands)


def _where(finding: Finding) -> Iterator[str]:
    """Yield the keys and the place, unless the message or torch's words have named them already."""
    said = "\n".join((finding.message, *finding.torch_says))
    if finding.keys and not _names(said, str(finding.keys[0][-1] if finding.keys[0] else "")):
        shown = and_so_on([abridged(place(key), _KEY) for key in finding.keys[: _KEYS + 1]], _KEYS)
        yield f"keys: {shown}{beyond(len(finding.keys) - _KEYS, before=' (', after=')')}"
    location = finding.location
    if location.member is not None and location.offset is not None:
        yield f"at byte {count(location.offset)} of {location.member}"
    elif location.offset is not None:
        yield f"at byte {count(location.offset)}"


def _names(said: str, key: str) -> bool:
    """Return whether the text has the key as a word: "a" is not named by "is missing"."""
    return re.search(rf"(?<!\w){re.escape(key)}(?!\w)", said) is not None


def _command(label: str, command: str, paint: Paint, width: int | None) -> Iterator[str]:
    """Yield a label and a command; the command keeps its line, so that it can be copied whole."""
    if width is not None and len(label) + len(command) > width:
        yield label.rstrip()
        yield f"    {paint.accent(command)}"
    else:
        yield f"{label}{paint.accent(command)}"


def _closing(report: FileReport, paint: Paint, width: int | None) -> Iterator[str]:
    from ckptdoctor.edits import Safety

    counted = _counted(report.findings, paint)
    safe = [each.fix for each in report.findings if each.fix is not None and each.fix.safety is Safety.SAFE]
    if len(safe) < 2:
        yield counted
        return
    every = len(safe) == len(report.findings)
    some = "all" if every else f"{count(len(safe))} of them"
    yield from _command(f"{counted}; {some} can be repaired safely at once:   ", fix_command(report.path), paint, width)


def _counted(findings: Iterable[Finding], paint: Paint) -> str:
    tally = Counter(finding.severity for finding in findings)
    names = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "info"}
    return ", ".join(
        paint.severity(severity, plural(tally[severity], noun)) for severity, noun in names.items() if tally[severity]
    )


def _examined(report: FileReport) -> str:
    """Return the parts that were read, and those that were not: the last line of every report."""
    said = [] if report.findings or report.error else ["No findings."]
    if report.interrupted:
        said = [interrupted(report)]
    elif report.container is not None:
        said.append(f"Read {size(report.bytes_read)} of {size(report.container.size)} in {report.seconds:.2f} s.")
    skipped = [each for each in report.skipped if not (report.interrupted and each.why == "interrupted")]
    if skipped:
        left_out = ", ".join(f"{each.what} ({each.why})" if each.why else each.what for each in skipped)
        said.append(f"Not examined: {escape(left_out.rstrip('.'))}.")
    return " ".join(said)


def _coverage(coverage: Coverage, findings: Iterable[Finding], width: int | None) -> Iterator[str]:
    """Yield the share of the target that fits before and after each repair."""
    best = coverage.steps[-1] if coverage.steps else None
    line = (
        f"fit to {escape(coverage.reference)} · {count(coverage.keys)} of {plural(coverage.total_keys, 'key')} as it is"
        f" ({percent(coverage.parameters, coverage.total_parameters)} of parameters)"
    )
    if best is not None:
        line += (
            f"  →  {count(best.keys)} of {count(coverage.total_keys)} after {plural(len(coverage.steps), 'step')}"
            f" ({percent(best.parameters, coverage.total_parameters)} of parameters)"
        )
    if coverage.retied:
        verb = "is" if coverage.retied == 1 else "are"
        line += f"; {count(coverage.retied)} of them {verb} not in the file, but from_pretrained ties them again"
    if (best.keys if best is not None else coverage.keys) < coverage.total_keys:
        line += f"; {_of_the_rest(coverage, findings)}"
    yield from wrapped(line, width, "", "  ")
    if coverage.told:
        yield from wrapped(escape(coverage.told), width, "  ", "  ")
    rows = [
        (str(number), abridged(escape(step.title), 60), step.code, count(step.keys), share)
        for number, step in enumerate(coverage.steps, 1)
        for share in [percent(step.parameters, coverage.total_parameters)]
    ]
    if rows:
        yield from (f"  {row}" for row in columns(rows, right=frozenset({3, 4}), gap="  "))


def _of_the_rest(coverage: Coverage, findings: Iterable[Finding]) -> str:
    """Return whether a repair below makes more fit than the steps: one that changes tensors or adds some."""
    from ckptdoctor.edits.tensors import TENSOR_EDITS

    done = {step.code for step in coverage.steps}
    fixes = [each.fix for each in findings if each.fix is not None and each.code not in done]
    more = any(isinstance(edit, TENSOR_EDITS) for fix in fixes for edit in fix.edits)
    return "repairs below make more of it fit" if more else "no repair makes the rest fit"


def _chain(coverage: Coverage, path: str, paint: Paint) -> Iterator[str]:
    """Yield the command that does all the steps, where they make everything fit that is wanted."""
    if coverage.option and coverage.steps and coverage.steps[-1].keys == coverage.total_keys:
        command = complete(f"{fix_command(path)} --auto {coverage.option}")
        yield f"  repair:   {paint.accent(command)}"


def statistics(report: Report) -> str:
    """Return a line for each rule, most frequent first: files, severity, code and name."""
    kinds = [(each.code, each.name, each.severity) for file in report.files for each in file.findings]
    tally = sorted(Counter(kinds).items(), key=lambda item: (-item[1], item[0][0]))
    rows = [(count(number), severity.value, code, name) for (code, name, severity), number in tally]
    return "\n".join(columns(rows, right=frozenset({0}), gap="  ")) if rows else ""
