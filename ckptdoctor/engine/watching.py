"""Long work in a thread of its own, so that whoever waits hears how far it is and Ctrl-C ends it at once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from threading import Thread
from typing import Generic, TypeVar

from ckptdoctor.engine.events import Progress

Result = TypeVar("Result")
Going = Callable[[int], bool]

_EVERY = 0.1  # seconds between two looks at the work
_GRACE = 5.0  # seconds that the work has to hand over what it has found


@dataclass(slots=True)
class Watched(Generic[Result]):
    """What came of the work: its ``result``, all of it unless it was ``interrupted``; None where there is none."""

    result: Result | None = None
    interrupted: bool = False
    error: BaseException | None = field(default=None, repr=False)


def watched(work: Callable[[Going], Result], what: str, total: int) -> Generator[Progress, None, Watched[Result]]:
    """Do ``work``, which is given a function to call with the bytes done; that says whether to go on.

    Yields how far it is, and returns what came of it. Raises what the work raised, unless it was told to stop.
    """
    state: Watched[Result] = Watched()
    done = 0

    def going(count: int) -> bool:
        nonlocal done
        done = count
        return not state.interrupted

    def run() -> None:
        try:
            state.result = work(going)
        except BaseException as error:  # noqa: BLE001  carried over to the thread that waits
            state.error = error

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield Progress(what, 0, total)
        while thread.is_alive():
            thread.join(_EVERY)
            yield Progress(what, done, total)
    except KeyboardInterrupt:
        state.interrupted = True
    finally:
        state.interrupted |= thread.is_alive()  # whoever waited has gone away
        thread.join(_GRACE)  # a thread that still computes when the process ends would make it crash
    if state.error is not None and not state.interrupted:
        raise state.error
    return state
