"""Writes the report for a pull request or an issue: a sentence in bold, a table of findings, what is left.

Text from files cannot leave its cell: nothing of it becomes a tag, a link or a mention.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ckptdoctor.findings import FileReport, Finding, Report, Severity
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.interrupted import interrupted, left_behind, not_begun
from ckptdoctor.rendering.numbers import plural
from ckptdoctor.rendering.shell import fix_command, with_path
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.wording import and_more, beyond

_MOST = 200  # rows: what a comment on GitHub holds (65,536 characters) with messages of the usual length
_MESSAGE = 240  # characters
_CLEAN = 20  # files without findings that are named


def render(report: Report, statistics: bool = False) -> str:
    """Return the whole report; ``statistics`` counts the findings of each rule as well."""
    return "\n".join(_lines(report, statistics))


def _lines(report: Report, statistics: bool) -> Iterator[str]:
    yield f"**{_sentence(report.files)}**"
    stopped = [f"{code(escape(file.path))}: {plain(interrupted(file))}" for file in report.files if file.interrupted]
    for line in (*stopped, *filter(None, [plain(escape(not_begun(report))), plain(escape(left_behind(report)))])):
        yield ""
        yield line
    rows = [row for file in report.files for row in _rows(file)]
    if rows:
        yield ""
        yield from table(("severity", "file", "rule", "finding", "repair"), rows[:_MOST])
    if len(rows) > _MOST:
        yield ""
        yield beyond(len(rows) - _MOST, "finding", before="… and ", after=": `--format json`")
    clean = [file for file in report.files if not (file.findings or file.error or file.interrupted)]
    if clean and rows:
        yield ""
        yield f"Nothing found in {and_more(clean, _CLEAN, say=lambda file: code(escape(file.path)))}."
    yield from _not_examined(report.files)
    if statistics and rows:
        yield ""
        yield from table(("rule", "findings"), _counted(report.files))


def _sentence(files: Sequence[FileReport]) -> str:
    found = [finding.severity for file in files for finding in file.findings]
    counts = [(each, found.count(each)) for each in reversed(Severity)]
    nouns = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "info"}
    said = [plural(number, nouns[each]) for each, number in counts if number]
    unread = sum(file.error is not None for file in files)
    said += [f"{plural(unread, 'file')} could not be examined"] if unread else []
    where = escape(files[0].path) if len(files) == 1 else plural(len(files), "file")
    nothing = "Interrupted" if any(file.interrupted for file in files) else "Nothing found"
    return f"{', '.join(said) or nothing} in {plain(where)}"


def _rows(file: FileReport) -> Iterator[tuple[str, ...]]:
    if file.error is not None:
        yield "error", code(escape(file.path)), "", plain(abridged(escape(file.error), _MESSAGE)), ""
    for finding in file.findings:
        yield (
            finding.severity.value,
            code(escape(file.path)),
            f"{code(finding.code)} {plain(finding.name)}",
            plain(abridged(escape(finding.message), _MESSAGE)),
            _repair(finding, file.path),
        )


def _repair(finding: Finding, path: str) -> str:
    if finding.fix is None:
        advice = plain(abridged(escape(with_path(finding.advice, path)), _MESSAGE))
        return " ".join([advice, *[code(escape(with_path(each, path))) for each in finding.commands]])
    return f"{code(escape(fix_command(path, finding.fix)))} ({finding.fix.safety.value})"


def _not_examined(files: Sequence[FileReport]) -> Iterator[str]:
    """Yield the parts that were skipped, each once however many files there are."""
    told = dict.fromkeys([(each.what, each.why) for file in files for each in file.skipped])
    if told:
        yield ""
        yield f"Not examined: {'; '.join([plain(escape(f'{what} ({why})')) for what, why in told])}."


def _counted(files: Sequence[FileReport]) -> list[tuple[str, str]]:
    counted = Counter([f"{finding.code} {finding.name}" for file in files for finding in file.findings])
    return [(plain(name), f"{number:,}") for name, number in sorted(counted.items())]


_SIGNS = re.compile(r"([\\`*_|\[\]~])")
_BREAK = "<!-- -->"  # between a sign and the word that it would make a mention or a link of


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table whose cells are Markdown already."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(cells)} |" for cells in body)


def code(text: str) -> str:
    """Return text in backticks, for a cell; "" for none. It was escaped for terminals, so that it is one line."""
    if not text:
        return ""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    room = " " if "`" in (text[0], text[-1]) else ""
    return f"{fence}{room}{text}{room}{fence}".replace("|", r"\|")


def plain(text: str) -> str:
    """Return text in which no sign means anything to Markdown, HTML or GitHub; terminals are safe already."""
    text = _SIGNS.sub(r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return text.replace("@", f"@{_BREAK}").replace("#", f"#{_BREAK}").replace("://", f":{_BREAK}//")
