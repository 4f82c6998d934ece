"""Lists the rules as a table for people, and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from ckptdoctor.findings import Severity
from ckptdoctor.rendering.json import SCHEMA, dump
from ckptdoctor.rendering.wrapping import columns, wrapped


class RulePage(Protocol):
    """A rule as it is shown. ``page`` is its documentation, ``summary`` the page's first sentence."""

    @property
    def code(self) -> str:
        """``N401``."""

    @property
    def name(self) -> str:
        """``module-prefix``."""

    @property
    def severity(self) -> Severity:
        """The severity of its findings unless they say otherwise."""

    @property
    def page(self) -> str:
        """The documentation."""

    @property
    def summary(self) -> str:
        """The first sentence of the page."""

    @property
    def address(self) -> str | None:
        """Where the page is published, if it is."""


def as_text(rules: Iterable[RulePage], width: int | None = None) -> str:
    """Return a line for each rule: code, name, severity, summary."""
    rows = [(rule.code, rule.name, rule.severity.value, _plain(rule.summary)) for rule in rules]
    lines = list(columns(rows, gap="  "))
    start = sum(max(len(row[i]) for row in rows) + 2 for i in range(3)) if rows else 0
    return "\n".join(part for line in lines for part in wrapped(line, width, "", " " * start))


def as_json(rules: Iterable[RulePage]) -> str:
    """Return a JSON document with every rule and its documentation."""
    listed = [
        {
            "code": rule.code,
            "name": rule.name,
            "severity": rule.severity.value,
            "summary": rule.summary,
            "documentation": rule.page.strip(),
            "url": rule.address,
        }
        for rule in rules
    ]
    return dump({"schema": SCHEMA, "rules": listed})


def page(rule: RulePage, width: int | None = None) -> str:
    """Return the documentation of one rule, under its code and name, and where it is published."""
    lines = [f"{rule.code} {rule.name} · {rule.severity.value}", "", *_plain_page(rule.page).strip().split("\n")]
    shown = [part for line in lines for part in _refitted(line, width)]
    return "\n".join([*shown, "", rule.address] if rule.address is not None else shown)


def _refitted(line: str, width: int | None) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())]
    return wrapped(line.strip(), width, indent) if line.strip() else [""]


def _plain_page(text: str) -> str:
    """Return a page without such marks; what torch prints keeps those that are its own."""
    sections = re.split(r"(?m)^(?=\S)", text)
    return "".join([_symptoms(each) if each.startswith("Symptoms\n") else _plain(each) for each in sections])


def _symptoms(text: str) -> str:
    lines = text.split("\n")
    return "\n".join([_plain(line) if _NO_QUOTE.match(line) else line for line in lines])


_NO_QUOTE = re.compile(r"\s*(?:Nothing|Often nothing|Or|A|An)\b")


def _plain(text: str) -> str:
    """Without the marks that only a renderer of reStructuredText needs."""
    return text.replace("``", "")
