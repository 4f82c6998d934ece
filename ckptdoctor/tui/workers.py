"""Does the long work of the browser in threads that report to a screen: examining, comparing and writing files."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from operator import is_
from threading import Event, Lock
from typing import TYPE_CHECKING

from textual.message_pump import MessagePump
from textual.worker import Worker, get_current_worker

from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.checkpoint.progress import Progress, heard
from ckptdoctor.diagnose import events
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.errors import StoppedError
from ckptdoctor.examine.file import diagnose
from ckptdoctor.examine.targets import read_reference
from ckptdoctor.findings import FileReport, Finding
from ckptdoctor.rendering.contents import header
from ckptdoctor.tui.background import guarded, posting, until_cancelled
from ckptdoctor.tui.messages import (
    CheckpointOpened,
    ComparingFailed,
    ComparisonMade,
    ExaminationEnded,
    ExaminationFailed,
    FileRecognised,
    FileReplaced,
    FindingFound,
    Progressed,
    RepairDone,
    RepairFailed,
    ValuesCompared,
    ValuesMeasured,
)
from ckptdoctor.tui.models.on_disk import DiskState, is_replaced, state_of
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint, opened_checkpoint

if TYPE_CHECKING:
    from ckptdoctor.differences import Difference
    from ckptdoctor.diffing.request import DiffRequest
    from ckptdoctor.repair.plan import Plan
    from ckptdoctor.tui.models.comparison import ComparedEntries


_NAMES = ("like", "model", "config")  # the fields of Settings that name it


class SharedTarget:
    """The target that ``settings`` name, if they name one, for the file at ``path``."""

    def __init__(self, settings: Settings, path: str | None = None) -> None:
        self.settings = settings
        self._path = path
        self.is_named = any(getattr(settings, name) is not None for name in _NAMES)
        self._reading = Lock()
        self._reference: Reference | None = None

    def read(self) -> Reference | None:
        """Return what the target expects; None where no target is named. The first thread to ask reads, others wait.

        Raises what ``examine.targets.read_reference`` does; then the next call tries again.
        """
        with self._reading:
            if self._reference is None and self.is_named:
                self._reference = read_reference(self.settings, self._path)
            return self._reference


_PATIENCE = 3.0  # seconds that the rules wait for the first painting, which they would slow down
# drawing leaves cycles behind, and collecting them must not be felt: often and little, where the command line, which
# makes none, collects seldom and much. The second number is how many times so many objects are looked through at once
# that outlived a first look: 20 times were 50 ms, which a key press waited for now and then
_COLLECTOR = (5_000, 3, 700)


class Examination:
    """One examination of a file. ``painted`` is set when the contents are on the screen, ``ended`` when it is over.

    ``found`` is all that was found so far, ``report`` what there is at the end.
    """

    def __init__(
        self,
        screen: MessagePump,
        path: str,
        settings: Settings,
        opened: OpenedCheckpoint | None = None,
        target: SharedTarget | None = None,
    ) -> None:
        self.screen = screen
        self.path = path
        self.settings = settings
        self.opened = opened
        self.target = target or SharedTarget(settings, path)
        self.painted = Event()
        self.ended = Event()
        self.found: list[Finding] = []
        self._rows: list[array[int]] = []  # of each of these
        self._again = opened is not None  # whether the contents were read by another examination
        self._state: DiskState | None = opened.state if opened is not None else None
        self.report: FileReport | None = None
        self._stop = Event()
        self._reading = False

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stop.is_set()

    def stop(self) -> bool:
        """Read no further, and go on with what has been read; False where nothing is being read."""
        if self._reading:
            self._stop.set()
        return self._reading

    def run(self) -> None:
        """Examine the file; for a thread worker, which may be cancelled at every event."""
        worker = get_current_worker()
        gc.disable()  # a look through the millions of objects of a large file would stop the screen for a second
        try:
            guarded(
                lambda: self._examine(worker), lambda sentence: self.screen.post_message(ExaminationFailed(sentence))
            )
        finally:
            collect_again()
            self.ended.set()

    def _examine(self, worker: Worker[None]) -> None:
        if self._again and is_replaced(self.path, self._state):
            self.screen.post_message(FileReplaced())
            return
        if not self._again:
            self._state = state_of(self.path)
            if self.target.is_named:
                self._show_contents_first()
        with closing(diagnose(self.path, self.settings, self.target.read())) as happenings:
            for event in happenings:
                if worker.is_cancelled:
                    return
                if self._is_of_another(event):
                    self.screen.post_message(FileReplaced())
                    return
                self._tell(event)
                self._reading = isinstance(event, Progress)
                if self._reading and self._stop.is_set():  # as Ctrl-C does
                    self._tell(happenings.throw(KeyboardInterrupt))

    def _is_of_another(self, event: events.Event) -> bool:
        """Return whether what was read is no longer the file whose contents are shown: the two must not be mixed."""
        if isinstance(event, events.Finished):
            return self._again and is_replaced(self.path, self._state)
        return isinstance(event, events.Opened) and self.opened is not None and is_replaced(self.path, self._state)

    def _show_contents_first(self) -> None:
        """Read the headers alone: a target may take seconds, for which nobody should wait before there is a tree."""
        with closing(diagnose(self.path, Settings(root=self.settings.root))) as happenings:
            for event in happenings:
                if isinstance(event, events.Opened):
                    self._tell(event)
                    return

    def _tell(self, event: events.Event) -> None:
        post = self.screen.post_message
        if isinstance(event, events.Recognised):
            post(FileRecognised(event.container))
        elif isinstance(event, events.Opened) and self.opened is None:
            self.opened = opened_checkpoint(self.path, event.checkpoint, self._state)
            post(CheckpointOpened(self.opened))
            self.painted.wait(_PATIENCE)
            self.opened.table.prepare()
        elif isinstance(event, events.Found):
            rows = self.opened.badges.touched(event.finding) if self.opened is not None else array("I")
            self.found.append(event.finding)
            self._rows.append(rows)
            post(FindingFound(event.finding, rows))
        elif isinstance(event, Progress):
            collect_again()  # reading every value may take hours
            post(Progressed(event))
        elif isinstance(event, events.Measured):
            post(ValuesMeasured(event.values))
        elif isinstance(event, events.Finished):
            self.report = event.report
            touched = list(map(self._touched, event.report.findings))
            post(ExaminationEnded(event.report, header(event.report), touched))

    def _touched(self, finding: Finding) -> array[int]:
        """Return the rows of a finding of the report, which may have other advice than when it was found."""
        if self.opened is None:
            return array("I")
        for found, rows in zip(self.found, self._rows, strict=True):
            if found.keys is finding.keys and found.location is finding.location:
                return rows
        return self.opened.badges.touched(finding)


def collect_again() -> None:
    """Let the garbage collector run, but pass over what is there by now: nothing of it becomes garbage."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(*_COLLECTOR)
        gc.enable()


class Comparing:
    """One comparison of two checkpoints. ``headers`` and ``values`` are for thread workers."""

    def __init__(self, screen: MessagePump, request: DiffRequest) -> None:
        self.screen = screen
        self.request = request

    def headers(self) -> None:
        """Compare the headers."""
        gc.disable()  # a look through the millions of objects of a large file would stop the screen for a second
        try:
            self._guarded(self._headers)
        finally:
            collect_again()

    def values(self, comparison: ComparedEntries) -> None:
        """Compare the values that are not known yet, until all are or the worker is cancelled."""
        self._guarded(lambda: self._values(comparison))

    def _headers(self) -> None:
        from ckptdoctor.diffing.diff import diff
        from ckptdoctor.tui.models.comparison import ComparedEntries

        self.screen.post_message(ComparisonMade(ComparedEntries(diff(self.request))))

    def _values(self, comparison: ComparedEntries) -> None:
        from ckptdoctor.diffing.diff import compare_values_of
        from ckptdoctor.tui.models.comparison import ComparedEntries, news, ties_by_name

        def sofar(found: Difference, entries: Sequence[int]) -> None:
            if entries:
                self.screen.post_message(ValuesCompared(news(found, entries)))
            elif not _same_pairs(found, comparison.found):  # contents have brought tensors together
                self.screen.post_message(ComparisonMade(ComparedEntries(found)))

        listener = until_cancelled(posting(self.screen))
        found = compare_values_of(comparison.found, self.request, sofar, listener)
        last = None if found is None else replace(news(found, ()), ties=ties_by_name(found))
        self.screen.post_message(ValuesCompared(last, ended=True))

    def _guarded(self, work: Callable[[], None]) -> None:
        guarded(work, lambda sentence: self.screen.post_message(ComparingFailed(sentence)))


def _same_pairs(one: Difference, other: Difference) -> bool:
    """Return whether entries are the same in both."""
    return len(one.pairs) == len(other.pairs) and all(map(is_, one.pairs, other.pairs))


class Repairing:
    """One repair. ``stop`` ends it between two blocks; then nothing has been written."""

    def __init__(self, screen: MessagePump, plan: Plan) -> None:
        self.screen = screen
        self.plan = plan
        self._stopped = Event()

    def stop(self) -> None:
        """End it; until the new file has got its name."""
        self._stopped.set()

    def run(self) -> None:
        """Write the output and prove it; for a thread worker."""
        guarded(self._repair, lambda sentence: self.screen.post_message(RepairFailed(sentence)))

    def _repair(self) -> None:
        from ckptdoctor.converting.repaired import carry_out

        post = posting(self.screen)

        def hear(progress: Progress) -> None:
            if self._stopped.is_set():
                raise StoppedError
            post(progress)

        try:
            with heard(hear):
                report = carry_out(self.plan).report
        except StoppedError:
            self.screen.post_message(RepairFailed("Stopped."))
        else:
            self.screen.post_message(RepairDone(report))
