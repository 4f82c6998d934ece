"""Long work in a thread of its own, so that whoever waits hears how far it is and Ctrl-C ends it at once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import field
from threading import Event, Thread
from typing import Generic, TypeVar

from ckptdoctor.checkpoint import process
from ckptdoctor.diagnose.events import Progress
from ckptdoctor.findings import Reading
from ckptdoctor.noun import noun

Result = TypeVar("Result")
Going = Callable[[int], bool]

_EVERY = 0.1  # seconds between two looks at the work
# seconds that the work has to hand over what it has found; fewer before there can be anything, while torch is imported.
# The command line's process may end before the work does; any other interpreter would crash with it in the end
_GRACE, _NOTHING_YET, _ELSEWHERE = 1.0, 0.2, 10.0


@noun(frozen=False)
class Watched(Generic[Result]):
    """What came of the work: its ``result``, all of it if ``reading.complete``; None where there is none.

    ``interrupted``: Ctrl-C came meanwhile, perhaps too late to matter.
    """

    reading: Reading | None = None
    result: Result | None = None
    interrupted: bool = False
    error: BaseException | None = field(default=None, repr=False)

    @property
    def complete(self) -> bool:
        """Whether nothing was left undone."""
        return self.reading is None or self.reading.complete


def watched(work: Callable[[Going], Result], what: str, total: int) -> Generator[Progress, None, Watched[Result]]:
    """Do ``work``, which is given a function to call with the bytes done; that says whether to go on.

    Yields how far it is, and returns what came of it. Raises what the work raised, unless it was told to stop.
    """
    state: Watched[Result] = Watched()
    over = Event()  # not Thread.join: an exception there makes Python take a thread that still runs for one that ended
    done = 0
    begun = stopped = False

    def going(count: int) -> bool:
        nonlocal done, begun, stopped
        done, begun = count, True
        stopped |= state.interrupted
        return not state.interrupted

    def run() -> None:
        try:
            state.result = work(going)
        except BaseException as error:  # noqa: BLE001  carried over to the thread that waits
            state.error = error
        finally:
            over.set()

    with process.patience():
        Thread(target=run, daemon=True).start()
        try:
            yield Progress(what, 0, total)
            while not (over.wait(_EVERY) or process.wants_end()):
                yield Progress(what, done, total)
            yield Progress(what, done, total)
            state.interrupted = process.wants_end()
        except KeyboardInterrupt:
            state.interrupted = True
        finally:
            state.interrupted |= not over.is_set()  # whoever waited has gone away
            grace = _ELSEWHERE if not process.is_ours() else _GRACE if begun else _NOTHING_YET
            complete = over.wait(grace) and not stopped and state.error is None
            state.reading = Reading(what, min(done, total), total, complete)
    if state.error is not None and not stopped:
        raise state.error
    return state


def told(work: Generator[Progress, None, Watched[Result]], watch: Callable[[Progress], None]) -> Watched[Result]:
    """The end of the work; Ctrl-C that comes while progress is drawn is the work's to see."""
    while True:
        try:
            watch(next(work))
        except StopIteration as end:
            found: Watched[Result] = end.value
            return found
        except KeyboardInterrupt as interrupt:
            try:
                watch(work.throw(interrupt))
            except StopIteration as end:
                last: Watched[Result] = end.value
                return last
