"""Markdown out of plain text: code that nothing in it can end, links to rules, and paragraphs of docstrings."""

from __future__ import annotations

import re
from collections.abc import Collection

_SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_CODE = re.compile(r"\b[A-Z]\d{3}\b")
_SPECIAL = re.compile(r"([\\*_\[\]<>#|~$])")


def span(text: str) -> str:
    """``text`` as code in a line, whatever it holds."""
    fence = "`" * (max(map(len, re.findall(r"`+", text)), default=0) + 1)
    edge = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{edge}{text}{edge}{fence}"


def fenced(text: str, language: str = "text") -> str:
    """``text`` as a block of code, whatever it holds."""
    fence = "`" * max(3, max(map(len, re.findall(r"`+", text)), default=0) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def prose(text: str, codes: Collection[str], rules: str) -> str:
    """Sentences of a docstring or a message: code stays code, and the codes of rules become links into ``rules``."""
    parts: list[str] = []
    start = 0
    for found in _SPAN.finditer(text):
        parts += [_linked(text[start : found.start()], codes, rules), span(" ".join(found[2].split()))]
        start = found.end()
    return "".join([*parts, _linked(text[start:], codes, rules)])


def cell(text: str) -> str:
    """Markdown inside a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def slug(text: str, most: int = 60) -> str:
    """A name for a page, out of what the page is about."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:most].strip("-")


def _linked(text: str, codes: Collection[str], rules: str) -> str:
    plain = _SPECIAL.sub(r"\\\1", text)
    return _CODE.sub(lambda found: f"[{found[0]}]({rules}{found[0]}.md)" if found[0] in codes else found[0], plain)
