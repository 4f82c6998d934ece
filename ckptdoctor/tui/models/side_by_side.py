"""The lines of a comparison: modules, the tensors in them that differ, and folds of those that do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Union

from ckptdoctor.errors import UsageError
from ckptdoctor.filters.found import Findings
from ckptdoctor.filters.language import Query, parse
from ckptdoctor.tui.models.comparison import DIFFERENT, Comparison, Flag

_OPEN = 300  # lines that modules may have together and be open to begin with


class Show(Enum):
    """Which entries have lines; the value says it in words."""

    ALL = "all, equal ones folded"
    CHANGED = "changed"
    RENAMED = "renamed"
    ONLY_A = "only in A"
    ONLY_B = "only in B"


class Order(Enum):
    """How lines follow each other."""

    MODULES = "by module"
    MAGNITUDE = "largest change first"


_SHOWN = {Show.CHANGED: Flag.CHANGED, Show.RENAMED: Flag.RENAMED, Show.ONLY_A: Flag.ONLY_A, Show.ONLY_B: Flag.ONLY_B}
_WORDS = {
    "is:changed": Flag.CHANGED,
    "is:renamed": Flag.RENAMED,
    "is:only-a": Flag.ONLY_A,
    "is:only-b": Flag.ONLY_B,
    "is:reshaped": Flag.RESHAPED,
    "is:recast": Flag.RECAST,
    "is:transposed": Flag.TRANSPOSED,
    "is:guessed": Flag.GUESSED,
    "is:different": DIFFERENT,
}


@dataclass(frozen=True, slots=True)
class Head:
    """The line of a module: those of its entries that are shown, and how many of them differ."""

    group: int
    entries: Sequence[int]
    differing: int
    is_open: bool

    @property
    def key(self) -> tuple[str, int]:
        """What stays the same of it when lines are made anew."""
        return "head", self.group


@dataclass(frozen=True, slots=True)
class Fold:
    """One line for entries that do not differ; ``depth`` 1 is within a module."""

    entries: Sequence[int]
    depth: int
    is_open: bool

    @property
    def key(self) -> tuple[str, int]:
        """What stays the same of it when lines are made anew."""
        return "fold", self.entries[0]


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor that is indented: ``depth`` 0 has its full name."""

    entry: int
    depth: int

    @property
    def key(self) -> tuple[str, int]:
        """What stays the same of it when lines are made anew."""
        return "entry", self.entry


@dataclass(frozen=True, slots=True)
class Beside:
    """A value beside the tensors that differs, by its number; -1 is the line above all of them."""

    number: int

    @property
    def key(self) -> tuple[str, int]:
        """What stays the same of it when lines are made anew."""
        return "beside", self.number


Line = Union[Head, Fold, Entry, Beside]
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody wants to see: which entries, how sorted, and which lines were opened (True) or closed by hand."""

    show: Show = Show.ALL
    order: Order = Order.MODULES
    text: str = ""
    turned: Mapping[Key, bool] = field(default_factory=dict)


def following(show: Show) -> Show:
    """What is shown next."""
    every = list(Show)
    return every[(every.index(show) + 1) % len(every)]


def check(text: str) -> None:
    """Raises UsageError, with a sentence, for a filter that makes no sense."""
    _understood(text)


def chosen(comparison: Comparison, show: Show, text: str) -> list[int]:
    """The entries that are shown, in file order: work for a thread where there are many."""
    query, words = _understood(text)
    rows = query.rows(comparison.table, Findings(comparison.table)) if query.terms else None
    kept = set(rows) if rows is not None else None
    flags, wanted = comparison.flags, int(_SHOWN.get(show, 0))
    return [
        entry
        for entry in comparison.order
        if (not wanted or flags[entry] & wanted)
        and (kept is None or entry in kept)
        and all(bool(flags[entry] & flag) is not negated for flag, negated in words)
    ]


def _understood(text: str) -> tuple[Query, list[tuple[Flag, bool]]]:
    """The words that ask for a kind of difference (negated or not), and the others as any list understands them."""
    rest, found = [], []
    for word in text.split():
        bare = word.removeprefix("!").lower()
        if bare == "is:same":
            found.append((DIFFERENT, not word.startswith("!")))
        elif bare in _WORDS:
            found.append((_WORDS[bare], word.startswith("!")))
        else:
            rest.append(word)
    try:
        return parse(" ".join(rest)), found
    except UsageError as error:
        if error.message.startswith("is:"):
            more = ", ".join([*_WORDS, "is:same"])
            raise UsageError(f"{error.message.removesuffix('.')}, and {more}.") from error
        raise


def arranged(comparison: Comparison, wanted: Wanted) -> list[Line]:
    """The lines, from the first to the last: work for a thread where there are many."""
    entries = chosen(comparison, wanted.show, wanted.text)
    folding = wanted.show is Show.ALL and not wanted.text
    if wanted.order is Order.MAGNITUDE:
        lines = list(_by_magnitude(comparison, entries, wanted.turned, folding))
    else:
        lines = list(_by_module(comparison, entries, wanted.turned, folding))
    others = comparison.found.others if folding else ()
    if others:
        lines.append(Beside(-1))
        if wanted.turned.get(("beside", -1), True):
            lines += map(Beside, range(len(others)))
    return lines


def _by_magnitude(
    comparison: Comparison, entries: Sequence[int], turned: Mapping[Key, bool], folding: bool
) -> Iterator[Line]:
    far = comparison.magnitudes
    apart = [entry for entry in entries if comparison.differs(entry) or not folding]
    # what is not known, NaN, comes behind what is
    yield from (Entry(entry, 0) for entry in sorted(apart, key=lambda entry: -far[entry] if far[entry] >= 0 else 0.0))
    same = [entry for entry in entries if not comparison.differs(entry)] if folding else []
    yield from _folded(same, 0, turned)


def _by_module(
    comparison: Comparison, entries: Sequence[int], turned: Mapping[Key, bool], folding: bool
) -> Iterator[Line]:
    groups: dict[int, list[int]] = {}
    for entry in entries:
        groups.setdefault(comparison.group_of[entry], []).append(entry)
    apart = {group: [entry for entry in members if comparison.differs(entry)] for group, members in groups.items()}
    many = sum(map(len, apart.values() if folding else groups.values())) > _OPEN and len(groups) > 1
    waiting: list[int] = []
    for group, members in groups.items():
        if folding and not apart[group]:
            waiting += members
            continue
        yield from _folded(waiting, 0, turned)
        waiting = []
        if not comparison.groups[group] or len(members) == 1:  # these need no line above them
            yield from _inside(comparison, members, 0, turned, folding)
            continue
        is_open = turned.get(("head", group), not many)
        yield Head(group, members, len(apart[group]), is_open)
        if is_open:
            yield from _inside(comparison, members, 1, turned, folding)
    yield from _folded(waiting, 0, turned)


def _inside(
    comparison: Comparison, members: Sequence[int], depth: int, turned: Mapping[Key, bool], folding: bool
) -> Iterator[Line]:
    yield from (Entry(entry, depth) for entry in members if comparison.differs(entry) or not folding)
    if folding:
        yield from _folded([entry for entry in members if not comparison.differs(entry)], depth, turned)


def _folded(entries: Sequence[int], depth: int, turned: Mapping[Key, bool]) -> Iterator[Line]:
    if len(entries) < 2:  # a line that stands for one would save none
        yield from (Entry(entry, depth) for entry in entries)
        return
    fold = Fold(entries, depth, turned.get(("fold", entries[0]), False))
    yield fold
    if fold.is_open:
        yield from (Entry(entry, depth + 1 if depth else 0) for entry in entries)
