"""Examines a file in a thread and reports to a screen, event by event, as the command line does."""

from __future__ import annotations

import gc
from array import array
from contextlib import closing
from threading import Event

from textual.message_pump import MessagePump
from textual.worker import Worker, get_current_worker

from ckptdoctor.diagnose import events
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import diagnose
from ckptdoctor.findings import FileReport, Finding
from ckptdoctor.report.contents import header
from ckptdoctor.tui.background import guarded
from ckptdoctor.tui.messages import (
    BookOpened,
    ExaminationEnded,
    ExaminationFailed,
    FileRecognised,
    FindingFound,
    Progressed,
)
from ckptdoctor.tui.models.book import Book, bind
from ckptdoctor.tui.target import Target

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
        book: Book | None = None,
        target: Target | None = None,
    ) -> None:
        self.screen = screen
        self.path = path
        self.settings = settings
        self.book = book
        self.target = target or Target(settings, path)
        self.painted = Event()
        self.ended = Event()
        self.found: list[Finding] = []
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
        with closing(diagnose(self.path, self.settings, self.target.read())) as happenings:
            for event in happenings:
                if worker.is_cancelled:
                    return
                self._tell(event)
                self._reading = isinstance(event, events.Progress)
                if self._reading and self._stop.is_set():  # as Ctrl-C does
                    self._tell(happenings.throw(KeyboardInterrupt))

    def _tell(self, event: events.Event) -> None:
        post = self.screen.post_message
        if isinstance(event, events.Recognised):
            post(FileRecognised(event.container))
        elif isinstance(event, events.Opened) and self.book is None:
            self.book = bind(self.path, event.checkpoint)
            post(BookOpened(self.book))
            self.painted.wait(_PATIENCE)
            self.book.table.prepare()
        elif isinstance(event, events.Found):
            rows = self.book.marks.touched(event.finding) if self.book is not None else array("I")
            self.found.append(event.finding)
            post(FindingFound(event.finding, rows))
        elif isinstance(event, events.Progress):
            collect_again()  # reading every value may take hours
            post(Progressed(event))
        elif isinstance(event, events.Finished):
            self.report = event.report
            post(ExaminationEnded(event.report, header(event.report)))


def collect_again() -> None:
    """Let the garbage collector run, but pass over what is there by now: nothing of it becomes garbage."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(*_COLLECTOR)
        gc.enable()
