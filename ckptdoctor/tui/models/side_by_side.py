"""Lines up a comparison: modules, the tensors in them that differ, and folds of those that do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Union

from ckptdoctor.errors import UsageError
from ckptdoctor.filters.found import Findings
from ckptdoctor.filters.language import STATES, Query, parse
from ckptdoctor.tui.models.comparison import DIFFERENT, UNLIKE, ComparedEntries, Flag
from ckptdoctor.wording import did_you_mean

_OPEN = 300  # lines that modules may have together and be open to begin with


class Show(Enum):
    """The entries that have lines; the value says it in words."""

    ALL = "all, equal ones folded"
    UNLIKE = "different in both"
    RENAMED = "renamed"
    ONLY_A = "only in A"
    ONLY_B = "only in B"


class LineOrder(Enum):
    """The order of the lines."""

    MODULES = "by module"
    MAGNITUDE = "largest change first"


SHOWN = {Show.UNLIKE: UNLIKE, Show.RENAMED: Flag.RENAMED, Show.ONLY_A: Flag.ONLY_A, Show.ONLY_B: Flag.ONLY_B}
_WORDS = {
    "is:changed": Flag.CHANGED,
    "is:renamed": Flag.RENAMED,
    "is:only-a": Flag.ONLY_A,
    "is:only-b": Flag.ONLY_B,
    "is:reshaped": Flag.RESHAPED,
    "is:recast": Flag.RECAST,
    "is:retagged": Flag.RETAGGED,
    "is:transposed": Flag.TRANSPOSED,
    "is:guessed": Flag.GUESSED,
    "is:different": DIFFERENT,
}


@dataclass(frozen=True, slots=True)
class HeadLine:
    """The line of a module: those of its entries that are shown, how many of them differ, and how many in name only."""

    group: int
    entries: Sequence[int]
    differing: int
    is_open: bool
    renamed: int

    @property
    def key(self) -> tuple[str, int]:
        """The identity of the line, which stays when lines are made again."""
        return "head", self.group


@dataclass(frozen=True, slots=True)
class FoldLine:
    """One line for entries that do not differ; ``depth`` 1 is within a module."""

    entries: Sequence[int]
    depth: int
    is_open: bool

    @property
    def key(self) -> tuple[str, int]:
        """The identity of the line, which stays when lines are made again."""
        return "fold", self.entries[0]


@dataclass(frozen=True, slots=True)
class EntryLine:
    """A tensor that is indented: ``depth`` 0 has its full name."""

    entry: int
    depth: int

    @property
    def key(self) -> tuple[str, int]:
        """The identity of the line, which stays when lines are made again."""
        return "entry", self.entry


@dataclass(frozen=True, slots=True)
class OtherLine:
    """A value other than a tensor that differs, by its number; -1 is the line above all of them."""

    number: int

    @property
    def key(self) -> tuple[str, int]:
        """The identity of the line, which stays when lines are made again."""
        return "beside", self.number


ComparisonLine = Union[HeadLine, FoldLine, EntryLine, OtherLine]
LineKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class WantedLines:
    """The lines somebody wants to see: which entries, how sorted, and which were opened (True) or closed by hand."""

    show: Show = Show.ALL
    order: LineOrder = LineOrder.MODULES
    text: str = ""
    turned: Mapping[LineKey, bool] = field(default_factory=dict)


def next_show(show: Show) -> Show:
    """Return the next choice of entries."""
    every = list(Show)
    return every[(every.index(show) + 1) % len(every)]


def require_filter(text: str) -> None:
    """Raise UsageError, with a sentence, for a filter that is invalid."""
    _understood(text)


def chosen(comparison: ComparedEntries, show: Show, text: str) -> list[int]:
    """Return the entries that are shown, in file order: work for a thread where there are many."""
    query, words = _understood(text)
    rows = query.rows(comparison.table, Findings(comparison.table)) if query.terms else None
    kept = set(rows) if rows is not None else None
    flags, wanted = comparison.flags, int(SHOWN.get(show, 0))
    return [
        entry
        for entry in comparison.order
        if (not wanted or flags[entry] & wanted)
        and (kept is None or entry in kept)
        and all(bool(flags[entry] & flag) is not negated for flag, negated in words)
    ]


def _understood(text: str) -> tuple[Query, list[tuple[Flag, bool]]]:
    """Return a query without the words for kinds of difference, and those kinds, each with whether it is negated."""
    rest, found = [], []
    for word in text.split():
        bare = word.removeprefix("!").lower()
        if bare == "is:same":
            found.append((DIFFERENT, not word.startswith("!")))
        elif bare in _WORDS:
            found.append((_WORDS[bare], word.startswith("!")))
        else:
            rest.append(word)
    known = [*(f"is:{state}" for state in STATES), *_WORDS, "is:same"]
    for word in rest:
        bare = word.removeprefix("!").lower()
        if bare.startswith("is:") and bare not in known:
            raise UsageError(f'Unknown filter "{bare}". Use one of {", ".join(known)}.{did_you_mean(bare, known)}')
    return parse(" ".join(rest)), found


def arranged(comparison: ComparedEntries, wanted: WantedLines) -> list[ComparisonLine]:
    """Return the lines, from the first to the last: work for a thread where there are many."""
    entries = chosen(comparison, wanted.show, wanted.text)
    folding = wanted.show is Show.ALL and not wanted.text
    if wanted.order is LineOrder.MAGNITUDE:
        lines = list(_by_magnitude(comparison, entries, wanted.turned, folding))
    else:
        lines = list(_by_module(comparison, entries, wanted.turned, folding))
    others = comparison.found.others if folding else ()
    if others:
        lines.append(OtherLine(-1))
        if wanted.turned.get(("beside", -1), True):
            lines += map(OtherLine, range(len(others)))
    return lines


def _by_magnitude(
    comparison: ComparedEntries, entries: Sequence[int], turned: Mapping[LineKey, bool], folding: bool
) -> Iterator[ComparisonLine]:
    far = comparison.magnitudes
    apart = [entry for entry in entries if comparison.differs(entry) or not folding]
    # what is not known, NaN, comes behind what is
    yield from (
        EntryLine(entry, 0) for entry in sorted(apart, key=lambda entry: -far[entry] if far[entry] >= 0 else 0.0)
    )
    same = [entry for entry in entries if not comparison.differs(entry)] if folding else []
    yield from _folded(same, 0, turned)


def _by_module(
    comparison: ComparedEntries, entries: Sequence[int], turned: Mapping[LineKey, bool], folding: bool
) -> Iterator[ComparisonLine]:
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
        renamed = sum([not comparison.changes(entry) for entry in apart[group]])
        yield HeadLine(group, members, len(apart[group]), is_open, renamed)
        if is_open:
            yield from _inside(comparison, members, 1, turned, folding)
    yield from _folded(waiting, 0, turned)


def _inside(
    comparison: ComparedEntries, members: Sequence[int], depth: int, turned: Mapping[LineKey, bool], folding: bool
) -> Iterator[ComparisonLine]:
    yield from (EntryLine(entry, depth) for entry in members if comparison.differs(entry) or not folding)
    if folding:
        yield from _folded([entry for entry in members if not comparison.differs(entry)], depth, turned)


def _folded(entries: Sequence[int], depth: int, turned: Mapping[LineKey, bool]) -> Iterator[ComparisonLine]:
    if len(entries) < 2:  # a line that stands for one would save none
        yield from (EntryLine(entry, depth) for entry in entries)
        return
    fold = FoldLine(entries, depth, turned.get(("fold", entries[0]), False))
    yield fold
    if fold.is_open:
        yield from (EntryLine(entry, depth + 1 if depth else 0) for entry in entries)
