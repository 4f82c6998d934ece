"""Looks at a run again and again, and judges each new checkpoint once, when it is complete.

A checkpoint is complete when nothing says that it is still being written: not its name (``grouping``), not the absence
of the file that its library writes last (``kinds``), not its headers, of which the last byte must be there; and when
the sizes and times of its files were the same in two looks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from time import monotonic, sleep

from ckptdoctor.errors import MissingFileError, UnreadableError, UsageError
from ckptdoctor.noun import field, noun, replace
from ckptdoctor.remote.addresses import is_address, shown
from ckptdoctor.runs.grouping import Candidate, listed_run
from ckptdoctor.runs.latest import search
from ckptdoctor.runs.step import Position
from ckptdoctor.runs.validity import Examined, examined
from ckptdoctor.watching.files import Files, files_of
from ckptdoctor.watching.judging import Base, Watched, base_of, in_epochs, judged, require_fail_on

_HERE, _ELSEWHERE = 2.0, 30.0  # seconds between two looks: a listing of a store is a request
_SHORTEST = 0.05
# seconds in which nothing is written to what its headers show to be cut off, until it is taken for damaged
_PATIENCE = 60.0
# looks at a store in which nothing changed, until the files in a folder are no longer listed
_SETTLED = 10


@noun
class WatchRequest:
    """A run, and what ends the watching of it.

    That is a look (``once``), a step, seconds without a new checkpoint, a process that ends, or a checkpoint that is
    "invalid", or "unresumable" (``fail_on``). With ``headers_only`` no value is read.
    """

    run: str
    interval: float | None = None
    once: bool = False
    until: int | None = None
    timeout: float | None = None
    pid: int | None = None
    fail_on: str = "never"
    headers_only: bool = False

    def __post_init__(self) -> None:
        if not self.run:
            raise UsageError('The run has an empty path. Name its folder, or "." for this one.')
        require_fail_on(self.fail_on)
        for name in ("interval", "timeout"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 <= seconds < 1e9:
                raise UsageError(f"--{name} must be a number of seconds: {seconds:g}.")

    @property
    def every(self) -> float:
        """Seconds between two looks."""
        if self.interval is not None:
            return max(self.interval, _SHORTEST)
        return _ELSEWHERE if is_address(self.run) else _HERE


@noun
class Began:
    """The run as it was at the beginning. ``there`` is false where nobody has made its folder yet.

    ``newest`` is the name of the newest valid checkpoint, "" where there is none, and ``reached`` how far that is.
    """

    run: str
    there: bool
    existing: int
    newest: str = ""
    reached: Position = field(default_factory=Position)


@noun
class Unseen:
    """Why the run, or a folder in it, could not be listed this time; it is tried again."""

    why: str


@noun
class Ended:
    """Why nothing more is waited for; ``well`` where that is what was asked for.

    ``unseen`` where something could not be listed in the last look: there may be more checkpoints.
    """

    why: str
    well: bool
    unseen: bool = False


@noun(frozen=False)
class _Known:
    """What is known of one candidate: its files, since when they are the same, and whether it has had its line.

    ``valid`` where that line said so.
    """

    files: Files
    since: float
    looks: int = 0
    over: bool = False
    valid: bool = False
    found: Examined | None = None


class Watcher:
    """One run that is watched, for how many ``seconds``.

    ``lines`` counts the checkpoints that were complete, and ``invalid`` those of them that are not valid.
    ``unfinished`` are the candidates that are not complete by now, and why. ``unseen`` says what could not be listed in
    the last look, by its path.
    """

    def __init__(self, request: WatchRequest, wait: Callable[[float], None] = sleep) -> None:
        self.request = request
        self.lines = self.invalid = 0
        self.unfinished: dict[str, str] = {}
        self._started = monotonic()
        self._wait = wait
        self._known: dict[str, _Known] = {}
        self._before: Base | None = None
        self._new = 0.0  # when the last line came
        self.unseen: dict[str, str] = {}
        self._unlisted: dict[str, str] = {}  # folders in the run that may hold candidates

    @property
    def seconds(self) -> float:
        """How long it has been watched."""
        return monotonic() - self._started

    def events(self) -> Iterator[Began | Watched | Unseen | Ended]:
        """Yield what was there, then each new checkpoint when it is complete, then why that is the end.

        Raises UnreadableError where the run cannot be listed at first, and UsageError where it holds several runs.
        """
        request = self.request
        self._new = monotonic()
        began = self._begin()
        yield began
        if began.newest and self._is_far(began.reached):
            yield Ended(f"{began.newest} has reached {request.until:,}", well=True)
            return
        while True:
            alive = request.pid is None or _is_alive(request.pid)
            self._wait(request.every)
            for each in self._look(alive=alive):
                if not isinstance(each, Watched):
                    yield each
                    continue
                self._new = monotonic()
                self.lines += 1
                self.invalid += not each.valid
                yield each
                end = self._end_with(each)
                if end is not None:
                    yield end
                    return
            if request.once:
                yield Ended("", well=True, unseen=bool(self.unseen))
                return
            if not alive:
                short = "" if request.until is None else f" before step {request.until:,}"
                yield Ended(f"Process {request.pid} has ended{short}", well=not short, unseen=bool(self.unseen))
                return
            if request.timeout is not None and monotonic() - self._new >= request.timeout:
                yield Ended(f"No new checkpoint for {request.timeout:g} s", well=False)
                return

    def checkpoints(self) -> Iterator[Watched]:
        """Yield the new checkpoints alone. Raises UnreadableError at the end where a folder could not be listed."""
        for each in self.events():
            if isinstance(each, Watched):
                yield each
            elif isinstance(each, Ended) and each.unseen:
                raise UnreadableError(next(iter(self.unseen.values())))

    def _end_with(self, each: Watched) -> Ended | None:
        """Return the end that a checkpoint brings; None where it brings none."""
        why = each.fails(self.request.fail_on)
        if why:
            return Ended(f"{each.name} {why}", well=False)
        if self._is_far(Position(each.step, each.epoch, total=not each.steps_of_epoch)):
            return Ended(f"{each.name} has reached {self.request.until:,}", well=True)
        return None

    def _is_far(self, position: Position) -> bool:
        """Return whether a step, or an epoch where steps are counted from its beginning, is the one that ends it."""
        far = position.epoch if in_epochs(position) else position.step
        return self.request.until is not None and far is not None and far >= self.request.until

    def _begin(self) -> Began:
        """Take down what is there: it has no line, except where its files change from now on."""
        run = self.request.run
        found = self._candidates()
        if found is None:
            return Began(shown(run), False, 0)
        now = monotonic()
        for each in found:
            files = None if each.unfinished else self._files(each, {})
            if files is not None:
                self._known[each.path] = _Known(files, now, over=not self.request.once)
        if self.request.once:
            return Began(shown(run), True, len(found))
        newest = search(run).found
        base = next((each for each in found if newest is not None and each.path == newest.path), None)
        files = self._files(base, {}) if base is not None else None
        if base is None or files is None:
            return Began(shown(run), True, len(found))
        self._before = base_of(examined(base), files, headers_only=self.request.headers_only)
        return Began(shown(run), True, len(found), base.name, self._before.found.reached)

    def _files(self, candidate: Candidate, unseen: dict[str, str]) -> Files | None:
        """Return the files of a candidate; None where it is gone, or cannot be listed, which is noted as ``unseen``."""
        try:
            return files_of(candidate)
        except UnreadableError as error:
            unseen[candidate.path] = error.message
            return None

    def _candidates(self) -> tuple[Candidate, ...] | None:
        """Return the candidates that are there, links to others left out; None where the run is not there."""
        try:
            found, unlisted = listed_run(self.request.run)
        except MissingFileError:
            if self.request.once:  # there will be no other look
                raise
            return None
        self._unlisted = {each.path: each.why for each in unlisted}
        if is_address(self.request.run):
            return found
        own = {os.path.realpath(each.path) for each in found if not os.path.islink(each.path)}
        return tuple([each for each in found if not (os.path.islink(each.path) and os.path.realpath(each.path) in own)])

    def _look(self, *, alive: bool) -> Iterator[Watched | Unseen]:
        """Yield what is complete, in the order in which it was saved.

        Where nobody writes any more, or nobody looks again, that includes what will never be complete.
        """
        try:
            found = self._candidates() or ()
        except UnreadableError as error:  # a store, or a disk of the network, that does not answer
            yield from self._note_unseen({self.request.run: error.message})
            return
        unseen = dict(self._unlisted)
        self.unfinished = {}
        ready: list[tuple[Candidate, _Known]] = []
        now = monotonic()
        for gone in self._known.keys() - {each.path for each in found}:
            del self._known[gone]
        for each in found:
            if each.unfinished:
                self.unfinished[each.name] = each.unfinished
                continue
            known = self._looked_at(each, now, unseen)
            if known is None or known.over:
                continue
            if known.looks or not alive:
                ready.append((each, known))
            else:
                self.unfinished[each.name] = "it is being written"
        yield from self._note_unseen(unseen)
        for candidate, known in sorted(ready, key=self._turn):
            line = self._told(candidate, known, now, final=self.request.once or not alive)
            if line is not None:
                yield line

    def _note_unseen(self, unseen: dict[str, str]) -> Iterator[Unseen]:
        """Yield what cannot be listed in this look and could in the one before, or for another reason."""
        new = [why for path, why in unseen.items() if self.unseen.get(path) != why]
        self.unseen = unseen
        yield from map(Unseen, new)

    def _turn(self, ready: tuple[Candidate, _Known]) -> tuple[object, ...]:
        candidate, known = ready
        numbers = candidate.numbers
        order = (candidate.version, not numbers.any, numbers.key) if self.request.once else (0, False, ())
        return (*order, known.files.saved, numbers.key, candidate.name)

    def _looked_at(self, candidate: Candidate, now: float, unseen: dict[str, str]) -> _Known | None:
        """Return what is known of a candidate with its files as they are now; None where it is gone."""
        known = self._known.get(candidate.path)
        settled = known is not None and known.over and known.looks >= _SETTLED
        if settled and candidate.folder and is_address(candidate.path):
            return known
        files = self._files(candidate, unseen)
        if files is None:
            return None
        if known is not None and known.valid and set(known.files.each) < set(files.each):
            known.files = files  # something was added after its line, such as a seal
            if self._before is not None and self._before.found.candidate.path == candidate.path:
                self._before = replace(self._before, files=files)
        if known is None or known.files != files:
            known = self._known[candidate.path] = _Known(files, now)
        else:
            known.looks += 1
        return known

    def _told(self, candidate: Candidate, known: _Known, now: float, *, final: bool) -> Watched | None:
        """Return the judgement on a candidate whose files no longer change; None where it is not complete after all."""
        if known.found is None:
            known.found = examined(candidate)
        found = known.found
        trouble = found.trouble or self._to_come(candidate, known.files)
        if trouble and not final and now - known.since < _PATIENCE:
            self.unfinished[candidate.name] = trouble
            return None
        request = self.request
        line = judged(request.run, found, known.files, self._before, headers_only=request.headers_only)
        if self._files(candidate, {}) != known.files:  # it was changed or removed while it was read
            self._known.pop(candidate.path, None)
            return None
        known.over, known.valid, known.found = True, line.valid, None
        if not found.trouble:
            self._before = base_of(found, known.files, headers_only=request.headers_only)
        return line

    def _to_come(self, candidate: Candidate, files: Files) -> str:
        """Return why more files are expected: the checkpoint before had some that this has not, such as of a rank."""
        before = self._before
        if before is None or not candidate.folder or before.found.candidate.series != candidate.series:
            return ""
        numbers = [_numbers(each) for each in (candidate, before.found.candidate)]
        name = files.lacks(before.files, *numbers)
        return f"{name} is not there yet, which {before.name} has" if name else ""


def _numbers(candidate: Candidate) -> list[int]:
    said = candidate.numbers
    return [each for each in (said.step, said.epoch, *said.others) if each is not None]


_SYNCHRONIZE, _WAIT_TIMEOUT = 0x00100000, 0x102  # Windows, winnt.h and winbase.h


def _is_alive(pid: int) -> bool:
    """Return whether a process still runs; one that has ended and that nobody has asked for its status does not."""
    if sys.platform == "win32":  # where os.kill would end it, whatever the signal
        import ctypes

        handle = ctypes.windll.kernel32.OpenProcess(_SYNCHRONIZE, 0, pid)
        runs = bool(handle) and ctypes.windll.kernel32.WaitForSingleObject(handle, 0) == _WAIT_TIMEOUT
        ctypes.windll.kernel32.CloseHandle(handle)
        return runs
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        if os.path.exists("/proc/self/stat"):
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
