"""Escapes text on its way into a page: nothing of it is markup, and nothing of it is invisible."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape as quoted
from urllib.parse import quote

from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.wrapping import abridged

_UNCODED = "-_.!~*()"  # signs of an address that stay as they are
_BREAKS = re.compile(r"(?<=[./_,])(?!\.|(?<=\d,)\d)")  # where long names may go on in the next line


def text(value: str, limit: int = 400) -> str:
    """Any text, for the inside of an element or of an attribute in quotes."""
    return quoted(abridged(escape(value), limit))


def name(value: str, limit: int = 160) -> str:
    """Return a key: it may be broken where its parts end."""
    return "<wbr>".join([quoted(part) for part in _BREAKS.split(abridged(escape(value), limit))])


def attributes(**given: object) -> str:
    """Return the attributes of an element, as in `` class="a" x="1"``: ``_`` stands for ``-``, None leaves one out."""
    told = [(key.rstrip("_").replace("_", "-"), value) for key, value in given.items() if value is not None]
    return "".join([f' {key}="{quoted(escape(str(value)))}"' for key, value in told])


def element(tag: str, inside: str = "", **given: object) -> str:
    """Return an element around markup."""
    return f"<{tag}{attributes(**given)}>{inside}</{tag}>"


def lines(parts: Iterable[str]) -> str:
    """Pieces of markup below each other; empty ones are left out."""
    return "\n".join([part for part in parts if part])


def section(key: str, title: str, inside: str, about: str = "") -> str:
    """Return a part of the page under a heading, which can be folded; "" where there is nothing in it.

    ``about`` is a sentence below the title.
    """
    if not inside:
        return ""
    intro = f'<p class="about">{text(about)}</p>' if about else ""
    head = f'<summary><h2 id="{key}-title">{text(title)}</h2>{permalink(key, title)}</summary>{intro}'
    body = f'<details class="fold" open>\n{head}\n{inside}\n</details>'
    return f'<section id="{key}" aria-labelledby="{key}-title">\n{body}\n</section>'


def permalink(key: str, title: str) -> str:
    """Return a sign that links to the element with this id."""
    return f'<a class="permalink" href="#{key}" aria-label="Link to {text(title, 160)}"></a>'


def tensor_id(name: str) -> str:
    """Return the id of the row of a tensor, as the script makes it, too: no space and no sign of markup is in it."""
    return f"tensor:{quote(name, safe=_UNCODED)}"


def command(line: str) -> str:
    """Return a command with a button that copies it."""
    return (
        f'<div class="command"><code tabindex="0">{text(line, 4000)}</code>'
        '<button type="button" class="copy scripted" aria-label="Copy the command">copy</button></div>'
    )


def coordinate(number: float) -> str:
    """Return a place in a drawing, to a tenth."""
    return f"{number:.1f}".removesuffix(".0")
