"""Compares two checkpoints side by side: every tensor of either is an entry, with what is known of its change.

An entry is a number: first the pairs of ``Difference``, then what only A has, then what only B has. What is asked of
all entries at once is kept in columns, so that 500,000 on both sides are sorted and narrowed down in a moment.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntFlag
from math import nan

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.natural import naturally
from ckptdoctor.differences import Difference, Numbers, Pair, Single, Tie, Verdict
from ckptdoctor.filters.table import Table
from ckptdoctor.rendering.depth import DepthMap, depth_map, magnitude


class Flag(IntFlag):
    """Something to be said of an entry."""

    RENAMED = 1
    CHANGED = 2  # other values, which those of another shape are not called
    ONLY_A = 4
    ONLY_B = 8
    UNKNOWN = 16  # the values were to be compared, and could not be
    RESHAPED = 32
    RECAST = 64
    RETAGGED = 128
    TRANSPOSED = 256
    GUESSED = 512  # the new name is one of several that are possible
    REMADE = 1024  # another kind of tensor


# the same values in another dtype, kind or arrangement, or with another device tag
OTHER_FORM = Flag.TRANSPOSED | Flag.RECAST | Flag.RETAGGED | Flag.REMADE
UNLIKE = Flag.CHANGED | Flag.RESHAPED | OTHER_FORM
DIFFERENT = UNLIKE | Flag.RENAMED | Flag.ONLY_A | Flag.ONLY_B | Flag.UNKNOWN
# each counted by itself, as in the report and its sentence
COUNTED = {
    Flag.CHANGED: "changed",
    Flag.RESHAPED: "reshaped",
    Flag.TRANSPOSED: "transposed",
    Flag.RECAST: "recast",
    Flag.RETAGGED: "retagged",
    Flag.REMADE: "remade",
    Flag.RENAMED: "renamed",
    Flag.ONLY_A: "only in A",
    Flag.ONLY_B: "only in B",
    Flag.UNKNOWN: "not comparable",
}
_DIFFERENT = int(DIFFERENT)  # plain numbers for what is asked of all entries: flags of an enum take ten times as long
_RENAMED = int(Flag.RENAMED)
_DRAWN = 100_000  # entries beyond which no picture is made
_SORTED = 60_000  # entries that are put into natural order
_SETTLED = (Verdict.EQUAL, Verdict.ROUNDED, Verdict.CLOSE)


@dataclass(frozen=True, slots=True)
class News:
    """The result of comparing more values: the whole difference, and the columns of the entries that are new in it."""

    found: Difference
    entries: Sequence[int]
    flags: array[int]
    magnitudes: array[float]
    ties: dict[str, list[Tie]] | None = None  # None: as before


class ComparedEntries:
    """A difference as screens show it. Made in a thread; changed by the screen alone, with ``learn``."""

    def __init__(self, found: Difference) -> None:
        self.found = found
        self.flags = array("H", map(_flags, found.pairs))
        self.flags.extend([int(Flag.ONLY_A)] * len(found.removed))
        self.flags.extend([int(Flag.ONLY_B)] * len(found.added))
        self.magnitudes = array("d", map(magnitude, found.pairs))
        self.magnitudes.extend([nan] * (len(found.removed) + len(found.added)))
        self.order = _in_natural_order(found, _in_file_order(found))
        self.groups: list[str] = []  # the modules that entries are shown under
        self.group_of = array("I", bytes(4 * len(self.flags)))
        self.members: list[list[int]] = []
        self.ties = ties_by_name(found)
        self.measuring = False  # whether values are being compared, or were
        self._sums: dict[int, Numbers] = {}
        self._table: Table | None = None
        self._sort_into_groups()

    def __len__(self) -> int:
        return len(self.flags)

    def pair(self, entry: int) -> Pair | None:
        """Return both sides of an entry; None where only one side has it."""
        return self.found.pairs[entry] if entry < len(self.found.pairs) else None

    def single(self, entry: int) -> Single | None:
        """Return the only side that has an entry; None where both have it."""
        left = entry - len(self.found.pairs)
        if left < 0:
            return None
        removed = self.found.removed
        return removed[left] if left < len(removed) else self.found.added[left - len(removed)]

    def name(self, entry: int) -> str:
        """Return the name of an entry in A, or in B where A does not have it."""
        return _name(self.found, entry)

    def tensors(self, entry: int) -> tuple[Tensor | None, Tensor | None]:
        """Return the tensors of A and B; None for the side that does not have it."""
        pair = self.pair(entry)
        if pair is not None:
            return pair.a, pair.b
        single = self.single(entry)
        assert single is not None
        return (single.tensor, None) if self.flags[entry] & Flag.ONLY_A else (None, single.tensor)

    def differs(self, entry: int) -> bool:
        """Return whether an entry differs in anything."""
        return self.flags[entry] & _DIFFERENT != 0

    def changes(self, entry: int) -> bool:
        """Return whether an entry differs in more than its name."""
        return self.flags[entry] & _DIFFERENT & ~_RENAMED != 0

    def numbers(self, group: int) -> Numbers:
        """Return the distance of all tensors of a module, as far as it is known."""
        if group not in self._sums:
            pairs = [self.found.pairs[entry] for entry in self.members[group] if entry < len(self.found.pairs)]
            known = [pair.values.numbers for pair in pairs if pair.values is not None and pair.values.numbers]
            self._sums[group] = sum(known, Numbers())
        return self._sums[group]

    def learn(self, news: News) -> None:
        """Take up what comparing more values has shown."""
        self.found = news.found
        for entry, flags, far in zip(news.entries, news.flags, news.magnitudes, strict=True):
            self.flags[entry] = flags
            self.magnitudes[entry] = far
        self.ties = self.ties if news.ties is None else news.ties
        self._sums.clear()

    def counts(self) -> dict[Flag, int]:
        """Return how many entries differ in each way; one that differs in several is counted in each."""
        tally = Counter(self.flags)
        return {kind: sum([number for flags, number in tally.items() if flags & kind]) for kind in COUNTED}

    @property
    def table(self) -> Table:
        """The entries as a table that filters read: work for a thread."""
        if self._table is None:
            found = self.found
            tensors = [pair.a for pair in found.pairs]
            tensors += [each.tensor for each in (*found.removed, *found.added)]
            made = Table(tensors)
            names = [f"{pair.name} → {pair.name_b}" if pair.renamed else pair.name for pair in found.pairs]
            made.names = names + [each.name for each in (*found.removed, *found.added)]
            self._table = made
        return self._table

    def _sort_into_groups(self) -> None:
        numbers: dict[str, int] = {}
        for entry in self.order:
            lead = module(_name(self.found, entry))
            number = numbers.setdefault(lead, len(numbers))
            if number == len(self.members):
                self.members.append([])
            self.members[number].append(entry)
            self.group_of[entry] = number
        self.groups = list(numbers)


def ties_by_name(found: Difference) -> dict[str, list[Tie]]:
    """Return the ties that only one side has, by the names of their tensors."""
    by_name: dict[str, list[Tie]] = {}
    for tie in found.ties:
        for name in (*tie.names, *tie.missing):
            by_name.setdefault(name, []).append(tie)
    return by_name


def news(found: Difference, entries: Sequence[int]) -> News:
    """Return what is new about these entries: work for a thread."""
    pairs = [found.pairs[entry] for entry in entries]
    return News(found, entries, array("H", map(_flags, pairs)), array("d", map(magnitude, pairs)))


def by_depth(comparison: ComparedEntries) -> DepthMap | None:
    """Return the layers of a comparison as a picture; None where there are few of them, or too many entries."""
    if len(comparison) > _DRAWN:
        return None
    both = [entry for entry in comparison.order if comparison.pair(entry) is not None]
    entries = [(comparison.name(each), comparison.magnitudes[each], comparison.changes(each)) for each in both]
    return depth_map(entries, comparison.found.compared)


def module(name: str) -> str:
    """Return the part of a name that its line is listed under: up to the first number, or the first word.

    ``layer1.0.conv1.weight`` is in ``layer1.0``, ``fc.weight`` in ``fc``, ``optimizer/state/0/step`` in ``optimizer``.
    """
    lead, slash, _ = name.partition("/")
    if slash:
        return lead
    words = name.split(".")[:-1]
    for place, word in enumerate(words):
        if word.isdecimal():
            return ".".join(words[: place + 1])
    return words[0] if words else ""


def _flags(pair: Pair) -> int:
    a, b, values = pair.a, pair.b, pair.values
    reshaped = a.shape != b.shape
    unlike = reshaped or a.dtype.name != b.dtype.name or a.device != b.device or pair.transposed or pair.remade
    flags = 0 if pair.name == pair.name_b else _RENAMED
    if not unlike and (values is None or values.verdict in _SETTLED) and pair.sure:
        return flags
    known = {
        Flag.GUESSED: not pair.sure,
        Flag.TRANSPOSED: pair.transposed,
        Flag.RESHAPED: reshaped and not pair.transposed,
        Flag.RECAST: pair.recast,
        Flag.RETAGGED: pair.retagged,
        Flag.REMADE: pair.remade,
        Flag.CHANGED: pair.changed,
        Flag.UNKNOWN: values is not None and values.verdict is Verdict.NOT_COMPARED and not reshaped,
    }
    return flags | sum([int(flag) for flag, holds in known.items() if holds])


def _name(found: Difference, entry: int) -> str:
    pairs, removed = len(found.pairs), len(found.removed)
    if entry < pairs:
        return found.pairs[entry].name
    if entry < pairs + removed:
        return found.removed[entry - pairs].name
    return found.added[entry - pairs - removed].name


def _in_file_order(found: Difference) -> list[int]:
    """Return the entries in the order of A; what only B has comes after what it follows there."""
    pairs = len(found.pairs)
    places = _places(found.a.checkpoint.tensors)
    keys = [places.get(id(pair.a), 0) << 32 for pair in found.pairs]
    keys += [places.get(id(each.tensor), 0) << 32 for each in found.removed]
    before = {id(pair.b): key for pair, key in zip(found.pairs, keys, strict=False)}
    added = {id(each.tensor): pairs + len(found.removed) + place for place, each in enumerate(found.added)}
    keys += [0] * len(found.added)
    last = 0
    for place, tensor in enumerate(found.b.checkpoint.tensors, 1):
        last = before.get(id(tensor), last)
        if id(tensor) in added:
            keys[added[id(tensor)]] = last + place
    return sorted(range(len(keys)), key=keys.__getitem__)


def _in_natural_order(found: Difference, order: list[int]) -> list[int]:
    if len(order) > _SORTED:
        return order
    return [order[place] for place in naturally([_name(found, entry) for entry in order])]


def _places(tensors: Iterable[Tensor]) -> dict[int, int]:
    return {id(tensor): place for place, tensor in enumerate(tensors, 1)}
