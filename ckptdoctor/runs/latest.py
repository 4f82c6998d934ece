"""Finds the newest valid checkpoint of a run, and asks as few candidates as that takes.

Candidates that are called alike are a series, in which names give the order as long as they say what contents say:
that is asked of the newest by name, and of the one that was modified last. The heads of series are compared by their
contents. Where a name and its contents disagree, all contents of its series are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cmp_to_key
from time import perf_counter

from ckptdoctor.noun import noun
from ckptdoctor.remote.addresses import shown
from ckptdoctor.runs.grouping import Candidate, Unlisted, listed_run
from ckptdoctor.runs.step import Position, compared, disagree
from ckptdoctor.runs.validity import Examined, Level, examined, read_deeply, resumable


@noun
class PassedOver:
    """A newer checkpoint that does not reach what was asked for, or a folder that may hold one, and why."""

    path: str
    name: str
    reason: str


@noun
class Latest:
    """The newest checkpoint of a run that reaches what was asked for. It can be used as its path (``os.fspath``).

    ``step`` and ``epoch`` are as its contents say, or else its name (``step_from``). ``levels`` are what was proven of
    it. ``without`` is what a resumed training starts again with, ``unproven`` why V1 could not be proven,
    ``disagreements`` where names and contents differ. ``opened`` counts the checkpoints that were opened.
    """

    run: str
    path: str
    name: str
    step: int | None
    epoch: float | None
    step_from: str
    levels: tuple[Level, ...]
    passed_over: tuple[PassedOver, ...] = ()
    without: tuple[str, ...] = ()
    unproven: str = ""
    disagreements: tuple[str, ...] = ()
    opened: int = 0
    seconds: float = 0.0

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path

    @property
    def level(self) -> Level:
        """The highest level that was proven."""
        return self.levels[-1]


@noun
class Search:
    """What a search for the newest checkpoint gave: ``found``, or None, and all that was passed over."""

    run: str
    asked: tuple[Level, ...]
    found: Latest | None
    passed_over: tuple[PassedOver, ...]
    disagreements: tuple[str, ...]
    candidates: int
    opened: int
    seconds: float


def search(run: str, *, needs_resumable: bool = False, verified: bool = False) -> Search:
    """Look for the newest checkpoint that reaches V0, and V3 or V1 and V2 where they are asked for.

    Raises UnreadableError where the run cannot be listed, and UsageError where it holds several runs.
    """
    started = perf_counter()
    there, unlisted = listed_run(run)
    looking = _Looking(there)
    passed: list[PassedOver] = []
    found: Latest | None = None
    for each in looking.newest_first():
        why, levels, without, unproven = _judged(each, needs_resumable, verified)
        if why:
            passed.append(PassedOver(shown(each.candidate.path), each.candidate.name, why))
            continue
        said = looking.position(each.candidate)
        passed += _unlisted(unlisted, each.candidate.version)
        found = Latest(
            *(run, each.candidate.path, each.candidate.name, said.step, said.epoch, said.source or "its name", levels),
            *(tuple(passed), without, unproven, tuple(looking.disagreements), looking.opened),
            perf_counter() - started,
        )
        break
    else:
        passed += _unlisted(unlisted, 0)
    asked = (
        Level.HEADERS,
        *((Level.BYTES, Level.VALUES) if verified else ()),
        *((Level.RESUMABLE,) if needs_resumable else ()),
    )
    return Search(
        *(shown(run), asked, found, tuple(passed), tuple(looking.disagreements)),
        *(len(looking.all), looking.opened, perf_counter() - started),
    )


def _unlisted(folders: Iterable[Unlisted], version: int) -> list[PassedOver]:
    """Return the folders that cannot be listed and may hold a newer checkpoint than one of this version."""
    return [PassedOver(shown(each.path), each.name, each.why) for each in folders if each.version >= version]


def _judged(
    each: Examined, needs_resumable: bool, verified: bool
) -> tuple[str, tuple[Level, ...], tuple[str, ...], str]:
    if each.trouble:
        return each.trouble, (), (), ""
    levels = [Level.HEADERS]
    without: tuple[str, ...] = ()
    unproven = ""
    if needs_resumable:
        said = resumable(each, deep=verified)
        if said.trouble:
            return said.trouble, (), (), ""
        without = said.without
    if verified:
        deep = read_deeply(each)
        if deep.trouble:
            return deep.trouble, (), (), ""
        unproven = deep.unproven
        levels += deep.levels
    if needs_resumable:
        levels.append(Level.RESUMABLE)
    return "", tuple(levels), without, unproven


class _Looking:
    """The candidates of a run, which are opened when their turn comes."""

    def __init__(self, found: tuple[Candidate, ...]) -> None:
        self.all = found
        self.opened = 0
        self.disagreements: list[str] = []
        self._examined: dict[str, Examined] = {}
        self._sure: set[str] = set()  # series of which every candidate has been asked

    def newest_first(self) -> Iterator[Examined]:
        """Yield the candidates, the newest first, each when it is asked for."""
        series: dict[str, list[Candidate]] = {}
        for each in self.all:
            series.setdefault(each.series, []).append(each)
        for name in series:
            series[name].sort(key=_by_name, reverse=True)
        self._ask_the_last_modified(series)
        while series:
            heads = []
            version = max(each[0].version for each in series.values())  # older ones wait until it has nothing left
            for name in [name for name, each in series.items() if each[0].version == version]:
                head = series[name][0]
                if self._contradicts(head) and name not in self._sure:
                    self._ask_all(name, series)
                    head = series[name][0]
                heads.append(head)
            newest = max(heads, key=cmp_to_key(self._newer))
            series[newest.series].remove(newest)
            if not series[newest.series]:
                del series[newest.series]
            yield self._look(newest)

    def position(self, candidate: Candidate) -> Position:
        """Return how far a candidate is."""
        return self._look(candidate).reached

    def _look(self, candidate: Candidate) -> Examined:
        if candidate.path not in self._examined:
            self.opened += not candidate.unfinished
            self._examined[candidate.path] = examined(candidate)
        return self._examined[candidate.path]

    def _contradicts(self, candidate: Candidate) -> bool:
        return disagree(self._look(candidate).position, candidate.numbers)

    def _ask_the_last_modified(self, series: dict[str, list[Candidate]]) -> None:
        """Open what was modified last: where that is not the newest by name, its name may be wrong."""
        last = max(self.all, key=lambda each: each.modified, default=None)
        if last is None or last.modified <= series[last.series][0].modified:  # stores know no times of folders
            return
        if self._contradicts(last):
            self._ask_all(last.series, series)

    def _ask_all(self, name: str, series: dict[str, list[Candidate]]) -> None:
        """Order a series by contents, and write down whose name says something else."""
        self._sure.add(name)
        before = list(series[name])
        series[name].sort(key=cmp_to_key(self._newer), reverse=True)
        for each in before:
            said = self._look(each).position
            wrong = each.numbers.step is not None or each.numbers.epoch is not None or series[name] != before
            if wrong and disagree(said, each.numbers):
                self.disagreements.append(f"{each.name}: {said.source} says {said}, unlike its name")

    def _newer(self, one: Candidate, other: Candidate) -> int:
        """Compare two candidates, for a sort that puts the newest last."""
        if one.version != other.version:
            return one.version - other.version
        here, there = self.position(one), self.position(other)
        by_step = compared(here, there)
        if by_step:
            return by_step
        if here.known and there.known and one.numbers.any != other.numbers.any:
            return 1 if one.numbers.any else -1  # the same step: a name with a number stays what it is
        by_name = _by_name(one), _by_name(other)
        if one.series == other.series and by_name[0] != by_name[1]:
            return 1 if by_name[0] > by_name[1] else -1
        return (one.modified > other.modified) - (one.modified < other.modified)


def _by_name(candidate: Candidate) -> tuple[object, ...]:
    numbers = candidate.numbers
    return (candidate.version, *numbers.key, numbers.version, candidate.modified)
