"""Makes one pattern of many keys, ``module.{conv1,layer{1..4},fc}.*``, and few lines of many renames.

Renames that change the same tokens are a group; a group is one line where its keys are all combinations of the tokens
in each place, and is taken apart until that is so: a line stands for exactly the keys of its pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from math import prod

from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.wording import and_so_on, span

Renamed = tuple[str, str]
_MOST = 24  # names in one pair of braces
_KINDS = 3  # changes that one line names
_Split = tuple[tuple[str, ...], tuple[str, ...]]
_Kind = tuple[int, int, int, tuple[str, ...], tuple[str, ...]]


def in_short(pairs: Sequence[Renamed]) -> list[Renamed]:
    """Return all renames in few words: what the names begin with, before and after; or the tokens alone that change.

    ``module.{conv,fc}.*`` and ``{conv,fc}.*`` show what changes; ``{0..2}.*`` and ``{0..2}.*`` would hide that it is
    the last token: that is ``*.gamma`` and ``*.weight``, ``*.beta`` and ``*.bias``. What is too much is ``("…", "")``.
    """
    olds, news = [old for old, _ in pairs], [new for _, new in pairs]
    here, there = _shared(olds), _shared(news)
    before, after = _going_on(olds, here), _going_on(news, there)
    behind = len(here) + 1
    if before != after and (
        any(old != new for old, new in zip(here, there, strict=False))
        or all(old.split(".")[:behind] != new.split(".")[:behind] for old, new in pairs)
    ):
        return [(before, after)]
    split = [(tuple(old.split(".")), tuple(new.split("."))) for old, new in pairs]
    kinds = dict.fromkeys([_change(old, new) for old, new in split])
    shown = list(dict.fromkeys([_tokens(kind) for kind in kinds]))
    return [*shown[:_KINDS], ("…", "")] if len(shown) > _KINDS else shown


def _shared(keys: Sequence[str]) -> list[str]:
    """Return the tokens that all keys begin with, the last of the shortest key left out."""
    most = min([key.count(".") for key in keys])
    first, last = min(keys).split("."), max(keys).split(".")  # what these two begin with, all others do, too
    differing = (at for at in range(most) if first[at] != last[at])
    return first[: next(differing, most)]


def _tokens(kind: _Kind) -> Renamed:
    """Return the tokens that change and no others, with ``*`` for what precedes and follows them."""
    start, end, _, before, after = kind
    old, new = (".".join([*["*"] * bool(start), *side, *["*"] * bool(end)]) for side in (before, after))
    return old, new


def grouped(pairs: Sequence[Renamed]) -> Iterator[tuple[str, str, int]]:
    """Yield (names before, names after, how many) of each group, in the order of their first pairs."""
    groups: dict[object, list[_Split]] = {}
    for old, new in pairs:
        before, after = tuple(old.split(".")), tuple(new.split("."))
        groups.setdefault(_change(before, after), []).append((before, after))
    for group in groups.values():
        yield from _exact(group)


def _change(before: tuple[str, ...], after: tuple[str, ...]) -> _Kind:
    """Return the kind of a rename: tokens that stay before and behind, how many there were, which go and come."""
    start = 0
    shorter = min(len(before), len(after))
    over = len(before) - shorter
    if over and before[0] != after[0] and before[over:] == after:  # what stands in front goes: most renames
        return 0, shorter, len(before), before[:over], ()
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return start, end, len(before), before[start : len(before) - end], after[start : len(after) - end]


def _exact(group: list[_Split]) -> Iterator[tuple[str, str, int]]:
    columns = [list(dict.fromkeys(column)) for column in zip(*[before for before, _ in group], strict=True)]
    if prod(map(len, columns)) == len(group):
        yield _shown([before for before, _ in group]), _shown([after for _, after in group]), len(group)
        return
    # by the place with fewest different tokens: parts of a model differ in few, their numbers in many; names before
    # numbers, which are told in one pair of braces
    places = [(_is_numbered(tokens), len(tokens), place) for place, tokens in enumerate(columns) if len(tokens) > 1]
    place = min(places)[2]
    for token in columns[place]:
        yield from _exact([each for each in group if each[0][place] == token])


def _is_numbered(tokens: Sequence[str]) -> bool:
    """Return whether they differ only in the numbers at their ends."""
    return len({token.rstrip("0123456789") for token in tokens}) == 1


def _shown(keys: Sequence[tuple[str, ...]]) -> str:
    return ".".join([braced(list(dict.fromkeys(column)), _MOST) for column in zip(*keys, strict=True)])


_ALTERNATIVES = 6  # names in one pair of braces before the rest is "…"


def pattern(keys: Sequence[str]) -> str:
    """Return a pattern of what the keys have in common and how they go on; not exact, and not meant to be.

    The tokens that all keys begin with, then the different tokens that follow, then ``.*`` where keys go on.
    """
    return _going_on(keys, _shared(keys))


def _going_on(keys: Sequence[str], shared: list[str]) -> str:
    if len(keys) == 1:
        return keys[0]
    lead = "".join([f"{token}." for token in shared])
    nexts: dict[str, None] = {}
    last = lead  # how a key begins that goes on as the one before: those of a layer are neighbours
    for key in keys:
        if last == lead or not key.startswith(last):
            token, dot, _ = key[len(lead) :].partition(".")
            nexts[token] = None
            last = f"{lead}{token}." if dot else lead
    longer = any(key.find(".", len(lead)) >= 0 for key in keys)
    return f"{lead}{braced(list(nexts))}{'.*' if longer else ''}"


def shortened(pattern: str, limit: int) -> str:
    """A pattern in at most ``limit`` characters: its lists in braces lose their last names, and no name is cut.

    What is too long without such a list loses its middle.
    """
    while len(pattern) > limit:
        lists = [(end - begin, begin, end, names) for begin, end, names in _lists(pattern) if len(names) > 1]
        if not lists:
            return abridged(pattern, limit)
        _, begin, end, names = max(lists)
        pattern = f"{pattern[:begin]}{{{','.join([*names[:-1], '…'])}}}{pattern[end:]}"
    return pattern


def _lists(pattern: str) -> Iterator[tuple[int, int, list[str]]]:
    """Where each pair of outer braces begins and ends, and the names in it without the "…" for more."""
    depth, begin, names, name = 0, 0, list[str](), 0
    for at, sign in enumerate(pattern):
        if sign == "{":
            depth += 1
            if depth == 1:
                begin, names, name = at, [], at + 1
        elif depth == 1 and sign in ",}":
            names.append(pattern[name:at])
            name = at + 1
        if sign == "}" and depth:
            depth -= 1
            if not depth:
                yield begin, at + 1, names[:-1] if names[-1] == "…" else names


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
    numbered = re.compile(r"(.*?)(0|[1-9][0-9]{0,9})", re.DOTALL).fullmatch
    for token in tokens:
        found = numbered(token)
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
