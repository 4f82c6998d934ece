"""Work that could keep a key waiting is done in threads; its result comes back as a message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

from rich.text import Text
from textual.message_pump import MessagePump
from textual.widget import Widget
from textual.worker import get_current_worker

from ckptdoctor.checkpoint.progress import Listener, Progress, now_and_then
from ckptdoctor.crash import one_line, wants_trace
from ckptdoctor.errors import CkptDoctorError, StoppedError
from ckptdoctor.rendering.escape import escape
from ckptdoctor.tui.messages import Computed, Progressed

T = TypeVar("T")

OPENS = "opens"  # the group of what is worked out before a screen can be opened: keys wait for it
FEW = 20_000  # tensors that are dealt with at once, within the time that a key press may take


@runtime_checkable
class Leaving(Protocol):
    """An application in which screens can be left, and come back to."""

    def leave_screen(self, *, keep: bool = True) -> bool:
        """Go back to the screen below; False where there is none. ``keep``: this one can be come back to."""


@runtime_checkable
class Wandering(Protocol):
    """A screen that remembers where on it somebody has been."""

    def wander(self, by: int) -> bool:
        """Go back or forward so many places; False where there is none."""


class Background(Widget):
    """Mixed into widgets and screens that work things out."""

    def compute(self, work: Callable[[], T], then: Callable[[T], None], group: str, rows: int | None = None) -> None:
        """Call ``then`` with what ``work`` gives: at once for few ``rows``, otherwise when a thread has done it.

        A later computation of the same group takes the place of one that is still going on, whose result is dropped.
        ``work`` must not change what is shown: only ``then`` may.
        """
        if rows is not None and rows <= FEW:
            self.workers.cancel_group(self, group)
            then(work())
            return
        self.run_worker(lambda: _work(self, work, then), group=group, exclusive=True, thread=True)

    def on_computed(self, message: Computed) -> None:
        """Take over a result."""
        message.stop()
        message.then(message.result)

    def leave(self) -> bool:
        """Go back to the screen below; False where there is none."""
        return isinstance(self.app, Leaving) and self.app.leave_screen()

    def uncover(self) -> bool:
        """Close whatever was opened from this screen, so that it is uppermost; False where it has been left."""
        if self.screen not in self.app.screen_stack:
            return False
        while self.app.screen is not self.screen:
            self.app.pop_screen()
        return True

    def give_up(self, sentence: str) -> None:
        """Go back to the screen below, which says why; where there is none, end with the reason."""
        if not self.uncover():
            return
        if isinstance(self.app, Leaving) and self.app.leave_screen(keep=False):
            self.app.notify(sentence, severity="error", markup=False)
        else:
            said = "\n".join(map(escape, sentence.split("\n")))  # with the line breaks of a traceback
            self.app.exit(return_code=2, message=Text(f"error: {said}"))

    def complain(self, sentence: str) -> None:
        """Say why something could not be worked out."""
        self.app.notify(sentence, severity="error", markup=False)


def guarded(work: Callable[[], None], failed: Callable[[str], object]) -> None:
    """Do the work of a thread; ``failed`` is called with the sentence of whatever error ends it."""
    try:
        work()
    except CkptDoctorError as error:
        failed(error.message)
    except Exception as error:  # the boundary of the thread: a bug is a sentence, and the terminal stays whole
        if wants_trace():
            raise
        failed(one_line(error))


def posting(screen: MessagePump) -> Listener:
    """Return a listener that posts to a screen how far the work of a thread is."""

    def post(progress: Progress) -> None:
        screen.post_message(Progressed(progress))

    return now_and_then(post)


def until_cancelled(listener: Listener | None = None) -> Listener:
    """Return a listener that ends the work of this thread once its worker is cancelled; ``listener`` hears the rest."""
    worker = get_current_worker()

    def hear(progress: Progress) -> None:
        if worker.is_cancelled:
            raise StoppedError
        if listener is not None:
            listener(progress)

    return hear


def _work(asker: Background, work: Callable[[], T], then: Callable[[T], None]) -> None:
    worker = get_current_worker()

    def post(message: Computed) -> None:
        if not worker.is_cancelled:
            asker.post_message(message)

    guarded(
        lambda: post(Computed(then, work())),
        lambda sentence: post(Computed(lambda said: asker.complain(str(said)), sentence)),
    )


# the ids of keys that need no contents, and so are never kept waiting for them
BACK = "back"
AT_ONCE = frozenset({BACK, "quit", "how-to-leave", "help", "copy", "commands"})


class StillReading(Background):
    """Mixed into such screens. ``filled`` is set when the contents are there, or will never be."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.filled = asyncio.Event()

    def complain(self, sentence: str) -> None:
        """Say why there will be no more contents."""
        self.filled.set()
        super().complain(sentence)

    def on_unmount(self) -> None:
        """Let nobody wait for a screen that has gone."""
        self.filled.set()
