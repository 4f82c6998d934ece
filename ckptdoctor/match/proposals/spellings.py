"""Proposes keys that differ in spelling alone: case and separators (N427), or dots that were left out (W308)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from ckptdoctor.match.moves import Gap, Move, move

_SEPARATORS = str.maketrans("", "", "._/-")
_NEGATIVE = re.compile(r"(?:^|[./])-[0-9]")
_DOTS = str.maketrans("", "", ".")


def propose(gap: Gap) -> Iterator[Move]:
    """Yield keys that agree with a wanted one once dots, or all separators and case, are taken out of both."""
    undotted = [key for key in gap.loose if "." not in key]
    for code, pattern, plain, keys in (
        ("W308", "names without dots → names with dots", _without_dots, undotted),
        ("N427", "case and separators", _without_separators, gap.loose),
    ):
        found = move(code, pattern, gap, _pairs(gap, plain, keys))
        if found is not None:
            yield found


def _pairs(gap: Gap, plain: Callable[[str], str], keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield keys and wanted keys that are the only ones with their plain form."""
    there: dict[str, str | None] = {}
    for key in gap.open:
        form = plain(key)
        there[form] = None if form in there else key
    for key in keys:
        new = there.get(plain(key))
        if new is not None:
            yield key, new


def _without_dots(key: str) -> str:
    return key.translate(_DOTS)


def _without_separators(key: str) -> str:
    if "-" in key and _NEGATIVE.search(key):  # a sign separates nothing
        return key
    return key.translate(_SEPARATORS).casefold()
