"""Shows the findings of one file in a notebook: a card each, with the cause, torch's own words and the command."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import FileReport, Finding, Severity
from ckptdoctor.rendering.html.markup import element, lines, text
from ckptdoctor.rendering.shell import fix_command, with_path
from ckptdoctor.wording import format_name

_SHOWN = 20  # cards
_COLOURS = {Severity.ERROR: "#c4314b", Severity.WARNING: "#b8860b", Severity.INFO: "#3b7dd8"}
_OK = "#2e8b57"
# notebooks are dark or light: only the edge has a colour of its own, and the rest is the notebook's
_CARD = "border-left:4px solid {colour};padding:.2em 0 .2em .8em;margin:.5em 0"


def cards(report: FileReport) -> str:
    """Return the file in one line, and a card for each finding; one in green where nothing was found."""
    container = report.container
    kind = f" · {text(format_name(container.format))}" if container is not None and container.format else ""
    return element("div", lines([element("div", f"<b>{text(report.path)}</b>{kind}"), *_cards(report)]))


def _cards(report: FileReport) -> Iterator[str]:
    if report.error is not None:
        yield _card(_COLOURS[Severity.ERROR], text(report.error))
    yield from (_finding(each, report.path) for each in report.findings[:_SHOWN])
    if len(report.findings) > _SHOWN:
        yield element("div", f"… and {len(report.findings) - _SHOWN:,} more: print(report)")
    left_out = [f"{each.what} ({each.why})" for each in report.skipped]
    if not report.findings and report.error is None:
        yield _card(_OK, "no problems found")
    if left_out:
        yield element("div", f"<small>Not examined: {text(', '.join(left_out))}</small>")


def _finding(finding: Finding, path: str) -> str:
    head = f"<b>{finding.severity.value} {finding.code}</b> {text(finding.name)} · {text(finding.message)}"
    said = element("pre", "\n".join([text(line) for line in finding.torch_says])) if finding.torch_says else ""
    advice = text(with_path(finding.advice, path)) if finding.advice else ""
    return _card(
        _COLOURS[finding.severity],
        lines([element("div", head), element("div", text(finding.cause)), said, advice, *_commands(finding, path)]),
    )


def _commands(finding: Finding, path: str) -> Iterator[str]:
    if finding.fix is not None:
        yield f"repair, {finding.fix.safety.value}: {element('code', text(fix_command(path, finding.fix)))}"
    for each in finding.commands:
        yield element("code", text(with_path(each, path)))


def _card(colour: str, inside: str) -> str:
    return element("div", inside, style=_CARD.format(colour=colour))
