"""Suggests a filter that matches something, where one matches nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from ckptdoctor.filters.found import FoundRows
from ckptdoctor.filters.language import parse
from ckptdoctor.filters.table import Table
from ckptdoctor.findings import Severity
from ckptdoctor.wording import nearest

_NAMES = 20_000  # names whose words are compared with what was typed
_PARTS = 2_000  # different ones
_GLOB = set("*?[")


def better_filter(text: str, table: Table, found: FoundRows) -> str:
    """Return the filter most like ``text`` that matches something, or "" where none comes to mind.

    A glob must match a whole name, which people forget: ``layer1.*`` is tried as ``*layer1.*``. A word that no name has
    is tried as the one that is spelt most like it, and so are the words of a glob; what no finding is called, as a
    severity, or else as any finding.
    """
    words = text.split()
    for number, word in enumerate(words):
        if word.startswith("!") or parse(word).rows(table, found):
            continue
        for candidate in _candidates(word, table):
            wanted = " ".join([*words[:number], candidate, *words[number + 1 :]])
            if parse(wanted).rows(table, found):
                return wanted
    return ""


def _candidates(word: str, table: Table) -> Iterator[str]:
    field, colon, value = word.partition(":")
    if colon and field.lower() == "finding":
        yield f"finding:{nearest(value, [each.value for each in Severity]) or '*'}"
    if _GLOB & set(word):
        yield from (f"*{word}", f"{word}*", f"*{word}*")
    if not re.fullmatch(r"[\w.*?]+", word):
        return
    parts = {part for name in table.folded[:_NAMES] for part in re.split(r"[./]", name)}
    known = sorted(parts)[:_PARTS]
    spelt = re.sub(r"\w+", lambda part: (get_close_matches(part[0], known, 1, 0.6) or [part[0]])[0], word.lower())
    yield from (spelt, f"*{spelt}") if _GLOB & set(word) else (spelt,)
