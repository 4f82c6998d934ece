"""Does work with a short answer in a fork of this process, on another core, while this one goes on.

The fork has everything that this process has read, for nothing is sent to it. Only its answer crosses, and only an
answer counts: where the work fails in the fork, in whatever way, it is done again here, and fails here with all that it
has to say. So it must change nothing outside its process.
"""

from __future__ import annotations

import os
import signal
import sys
from _thread import _count as all_but_the_first  # threading need not be there
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from marshal import dumps, loads
from typing import Any, Generic, NoReturn, TypeVar
from warnings import catch_warnings, simplefilter

from ckptdoctor.checkpoint import process
from ckptdoctor.checkpoint.progress import Progress, heard, phase

Answer = TypeVar("Answer")

# a fork takes some milliseconds, and so does every page of memory that either of them writes to
WORTH = 5_000  # tensors
HARMLESS = frozenset({"ckptdoctor-line", "ckptdoctor-sync"})  # threads that draw a line, and wait for the disk
_NOT_FORKED = ("torch", "numpy")  # libraries with threads of their own, which a fork would not have
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_COMPLETE = b"."  # at the end of an answer
_BLOCK = 1 << 20


class Told(Generic[Answer]):
    """The answer, when it is asked for. ``forked``: it is worked out in a fork, so that there is time meanwhile."""

    def __init__(self, ask: Callable[[], Answer], forked: bool) -> None:
        self._ask = ask
        self.forked = forked

    def __call__(self) -> Answer:
        """Return it; wait for it where it is not there yet."""
        return self._ask()


@contextmanager
def alongside(
    do: Callable[[], Answer], tensors: int, again: Callable[[], Answer] | None = None
) -> Iterator[Told[Answer]]:
    """Do something that takes the longer the more ``tensors`` there are, as if it was done first; gives its answer.

    Answers are plain values: numbers, texts, bytes, and tuples of them. Where it is not worth a fork, or none can be
    had, it is done first. Where it fails, that is what is raised, whatever has failed meanwhile: it is done ``again``
    here, which matters where what it looks at is changed meanwhile.
    """
    pipe = _pipe() if tensors >= WORTH and _can_fork() else None
    if pipe is None:
        done = do()
        yield Told(lambda: done, False)
        return
    reading, writing = pipe
    answers: list[Answer] = []
    number = -1

    def told() -> Answer:
        if not answers and number > 0:
            answers.extend(_answer(reading))
        if not answers:
            answers.append((again or do)())
        return answers[0]

    try:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # none must find our handlers in the fork
        try:
            number = _fork()
            if number == 0:
                _work(do, writing, mask)
        finally:
            os.close(writing)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if number < 0:
            answers.append(do())
        try:
            yield Told(told, number > 0)
        except Exception:  # raised below, unless what the fork does fails too: it would have come first
            told()
            raise
        told()
    finally:
        os.close(reading)
        if number > 0:
            _end(number, not answers)


def _can_fork() -> bool:
    """Return whether a fork is as good as this process, and has a core to itself."""
    if sys.platform != "linux" or not process.is_ours() or any(name in sys.modules for name in _NOT_FORKED):
        return False
    return len(os.sched_getaffinity(0)) > 1 and _is_alone()


def _is_alone() -> bool:
    """Return whether this is the first thread, and others, if there are any, do nothing that a fork would miss."""
    threading = sys.modules.get("threading")  # who imports headers alone does without
    if threading is None:
        return not all_but_the_first()
    others = [each.name for each in threading.enumerate() if each is not threading.current_thread()]
    first = threading.current_thread() is threading.main_thread()
    return first and HARMLESS.issuperset(others) and all_but_the_first() == len(others)


def _pipe() -> tuple[int, int] | None:
    try:
        return os.pipe()
    except OSError:  # too many files are open: it works without
        return None


def _fork() -> int:
    """Return the number of the new process, 0 in it, and -1 where there can be no more of them."""
    try:
        with catch_warnings():
            simplefilter("ignore", DeprecationWarning)  # of Python 3.12, about threads, which are known to do no harm
            return os.fork()
    except OSError:
        return -1


def _work(do: Callable[[], Answer], writing: int, mask: set[int | signal.Signals]) -> NoReturn:
    """Be the fork, and end it: it says nothing but its answer, and no signal has it clear up what is not its own."""
    status = 1
    try:
        sys.stdout = sys.stderr = None  # a thread may have been writing to them
        for each in _SIGNALS:  # Ctrl-C is for all processes of a terminal: ours ends its forks
            signal.signal(each, signal.SIG_IGN if each is signal.SIGINT else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with heard(_unheard), phase("", 0):
            answer: Any = do()
            left = memoryview(dumps(answer) + _COMPLETE)
        while left:
            left = left[os.write(writing, left) :]
        status = 0
    finally:
        os._exit(status)


def _end(number: int, now: bool) -> None:
    """Wait for the end of a fork, which has answered, or is given up ``now``."""
    if now:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    with suppress(ChildProcessError):  # whoever started us has the system forget our forks when they end
        os.waitpid(number, 0)


def _unheard(progress: Progress) -> None:
    """Hear how far it is; the other process tells of its own work."""


def _answer(reading: int) -> list[Any]:
    """Wait for the answer; there is none where the fork has failed."""
    data = b"".join(iter(lambda: os.read(reading, _BLOCK), b""))
    return [loads(data)] if data.endswith(_COMPLETE) else []
