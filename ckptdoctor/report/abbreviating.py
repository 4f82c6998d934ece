"""Many keys as one pattern: ``module.{conv1,layer{1..4},fc}.*``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ckptdoctor.wording import and_so_on, span

_ALTERNATIVES = 6  # names in one pair of braces before the rest is "…"


def pattern(keys: Sequence[str]) -> str:
    """One pattern that shows what the keys have in common and how they go on; not exact, and not meant to be.

    The tokens that all keys begin with, then the different tokens that follow, then ``.*`` where keys go on.
    """
    if len(keys) == 1:
        return keys[0]
    split = [key.split(".") for key in keys]
    shared = 0
    while all(len(tokens) > shared + 1 for tokens in split) and len({tokens[shared] for tokens in split}) == 1:
        shared += 1
    nexts = list(dict.fromkeys(tokens[shared] for tokens in split))
    longer = any(len(tokens) > shared + 1 for tokens in split)
    lead = "".join(f"{token}." for token in split[0][:shared])
    return f"{lead}{braced(nexts)}{'.*' if longer else ''}"


def braced(tokens: Sequence[str], most: int = _ALTERNATIVES) -> str:
    """Different tokens for one place: the token, or ``{a,b,c}`` with numbered neighbours folded to ``layer{1..3}``."""
    words = list(_runs(tokens))
    if len(words) == 1:
        return words[0]
    return f"{{{and_so_on(words, most, between=',', end=',…')}}}"


def _runs(tokens: Iterable[str]) -> Iterable[str]:
    """Tokens with numbered neighbours folded: ``layer1 layer2 layer3`` is ``layer{1..3}``."""
    numbers: dict[str, list[int]] = {}
    order: dict[str, None] = {}
    for token in tokens:
        found = re.fullmatch(r"(.*?)(0|[1-9][0-9]{0,9})", token, re.DOTALL)
        stem = f"#{found[1]}" if found else f"={token}"
        order[stem] = None
        if found:
            numbers.setdefault(stem, []).append(int(found[2]))
    for stem in order:
        if stem in numbers:
            yield _numbered(stem[1:], sorted(numbers[stem]))
        else:
            yield stem[1:]


def _numbered(stem: str, values: list[int]) -> str:
    if len(values) == 1:
        return f"{stem}{values[0]}"
    if values[-1] - values[0] == len(values) - 1:
        return f"{stem}{{{span(values[0], values[-1])}}}"
    return f"{stem}{{{values[0]}…{values[-1]}}}"
