"""Puts many renames in a few words: ``downsample_layers.{n} → stages.{n}.downsample``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ckptdoctor.match.likeness import Tokens
from ckptdoctor.noun import noun
from ckptdoctor.wording import and_more

_NUMBER = re.compile(r"[0-9]+")
_SHOWN = 8
_LETTERS = "nmkj"
_LONG = 19  # digits of two numbers that still count something


@noun
class Rewording:
    """A part that has one path here and another one there."""

    old: Tokens
    new: Tokens

    def middle(self) -> tuple[Tokens, Tokens]:
        """Return what differs: without what both begin and end with."""
        start, shortest = 0, min(len(self.old), len(self.new))
        while start < shortest and self.old[start] == self.new[start]:
            start += 1
        end = 0
        while end < shortest - start and self.old[-1 - end] == self.new[-1 - end]:
            end += 1
        return self.old[start : len(self.old) - end], self.new[start : len(self.new) - end]


def template(name: str) -> str:
    """Return a name with its numbers taken out."""
    return _NUMBER.sub("#", name)


def describe(rewordings: Iterable[Rewording]) -> str:
    """Return the rewordings, those that differ only in numbers as one."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for each in dict.fromkeys(rewordings):
        old, new = ".".join(each.old), ".".join(each.new)
        groups.setdefault((template(old), template(new)), []).append((old, new))
    return and_more(list(groups.values()), _SHOWN, say=_said)


def _said(names: Sequence[tuple[str, str]]) -> str:
    """Return ``a.{n} → b.{n+1}.c`` for names of one form; the names themselves where there is only one."""
    old, new = names[0]
    ours = list(zip(*[_NUMBER.findall(one) for one, _ in names], strict=True))
    theirs = list(zip(*[_NUMBER.findall(other) for _, other in names], strict=True))
    letters: dict[int, str] = {}
    for place, numbers in enumerate(ours):
        if len(set(numbers)) > 1:
            letters[place] = _LETTERS[len(letters) % len(_LETTERS)]
    before = [f"{{{letters[place]}}}" if place in letters else numbers[0] for place, numbers in enumerate(ours)]
    after = [_number(numbers, ours, letters) for numbers in theirs]
    if not new:
        return f'drop "{_filled(old, before)}."'
    return f"{_filled(old, before) or '(none)'} → {_filled(new, after)}"


def _number(numbers: Sequence[str], ours: Sequence[Sequence[str]], letters: dict[int, str]) -> str:
    """Return one number of the new names: always the same, that of an old one, or that plus a constant."""
    if len(set(numbers)) == 1:
        return numbers[0]
    apart = {letter: by for place, letter in letters.items() if (by := _apart(ours[place], numbers)) is not None}
    if not apart:
        return "{…}"
    letter, by = min(apart.items(), key=lambda each: abs(each[1]))
    return f"{{{letter}{by:+d}}}" if by else f"{{{letter}}}"


def _apart(ours: Sequence[str], theirs: Sequence[str]) -> int | None:
    """Return by how much each number is larger than its counterpart, or None where that differs."""
    pairs = [(one, other) for one, other in zip(ours, theirs, strict=True) if len(one + other) < _LONG]
    found = {int(other) - int(one) for one, other in pairs}
    return found.pop() if len(pairs) == len(ours) and len(found) == 1 else None


def _filled(name: str, numbers: Sequence[str]) -> str:
    left = iter(numbers)
    return _NUMBER.sub(lambda _: next(left), name)
