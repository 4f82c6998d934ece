"""Markdown that text from files cannot leave: nothing of it becomes a tag, a link, a mention or a cell of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_SIGNS = re.compile(r"([\\`*_|\[\]~])")
_BREAK = "<!-- -->"  # between a sign and the word that it would make a mention or a link of


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table whose cells are Markdown already."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(cells)} |" for cells in body)


def code(text: str) -> str:
    """Text in backticks, for a cell; "" for none. It has been escaped for terminals, so that it is one line."""
    if not text:
        return ""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    room = " " if "`" in (text[0], text[-1]) else ""
    return f"{fence}{room}{text}{room}{fence}".replace("|", r"\|")


def plain(text: str) -> str:
    """Text in which no sign means anything to Markdown, HTML or GitHub; escaped for terminals already."""
    text = _SIGNS.sub(r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return text.replace("@", f"@{_BREAK}").replace("#", f"#{_BREAK}").replace("://", f":{_BREAK}//")
