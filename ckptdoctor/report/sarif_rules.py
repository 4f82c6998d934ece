"""A rule as SARIF describes rules: its page as help, in plain text and in Markdown."""

from __future__ import annotations

import re
from textwrap import dedent

from ckptdoctor.findings import Severity
from ckptdoctor.report.rule_table import RulePage

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_LITERAL = re.compile(r"``(.+?)``", re.DOTALL)
_SECTION = re.compile(r"^(\S.*)\n(?=    )((?: {4}.*\n?|\n)+)", re.MULTILINE)


def descriptor(rule: RulePage) -> dict[str, object]:
    """The ``reportingDescriptor`` of a rule. Markdown is what GitHub shows, plain text what others do."""
    page = rule.page.strip()
    meaning = sections(page).get("What it means", rule.summary)
    return {
        "id": rule.code,
        "name": _pascal(rule.name),
        "shortDescription": {"text": _text(rule.summary)},
        "fullDescription": {"text": _text(" ".join(meaning.split()))},
        "help": {"text": _text(page), "markdown": _markdown(rule)},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": ["checkpoint", rule.name]},
    }


def sections(page: str) -> dict[str, str]:
    """The titled sections of a page, each without its indentation."""
    return {match[1]: dedent(match[2]).strip() for match in _SECTION.finditer(page)}


def _markdown(rule: RulePage) -> str:
    parts = [f"# {rule.code} {rule.name}", _marked(rule.summary)]
    for title, text in sections(rule.page).items():
        body = f"```text\n{text}\n```" if title == "What you see" else _marked(text)
        parts.append(f"## {title}\n\n{body}")
    return "\n\n".join(parts)


def _marked(text: str) -> str:
    return _LITERAL.sub(lambda match: f"`{' '.join(match[1].split())}`", text)


def _text(text: str) -> str:
    return _LITERAL.sub(r"\1", text)


def _pascal(name: str) -> str:
    """``ModulePrefix``: 3.49.7 asks for an identifier that people can read."""
    return "".join([word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", name)])
