"""Tells whose process this is, and whether somebody wants it to end.

Only in the command line's own process are signals handled for good; a library leaves them to the program that uses it,
where Ctrl-C stays a KeyboardInterrupt at any moment. Here it is one, too, but only once, so that clearing up is never
interrupted itself; and where threads are waited for (``patience``) it is only noted, since an exception there could
make one that still computes pass for one that has ended. The second Ctrl-C ends the process at once.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

Work = TypeVar("Work", bound=Callable[..., Any])

_INTERRUPTED = 128 + signal.SIGINT
_AGAIN = 0.02  # seconds after which a signal that got lost is sent again
# Contents are trees of small immutable objects without cycles: at its usual pace (700 new objects) the garbage
# collector would visit the 50,000 tensors of a large checkpoint again and again and find nothing
_COLLECTOR = (100_000, 50, 100)


class Interrupt(BaseException):
    """What the handler of a signal raises. Not an Exception: nothing on the way may take it for an error."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def again(self) -> None:
        """Send the signal again: the exception came where Python can raise nothing."""
        send_again(self.number)


class _State:
    """What is known of this process."""

    own = False
    patient = 0  # how many wait for threads
    asked = False  # Ctrl-C was pressed
    heard = False  # and somebody acts upon it


_last_things: list[Callable[[], None]] = []
_kept: list[object] = []


def take() -> None:
    """From now on the process is the command line's, and nobody else's code runs in it."""
    _State.own = True
    sys.unraisablehook = _unraisable
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as for the background jobs of a shell
        signal.signal(signal.SIGINT, _interrupted)


def collect_seldom() -> None:
    """Have garbage collected at the pace of large contents."""
    gc.set_threshold(*_COLLECTOR)


def is_ours() -> bool:
    """Return whether it is; a library leaves the signals of a program alone."""
    return _State.own


def before_leaving(do: Callable[[], None]) -> None:
    """Have ``do`` called before the process ends without unwinding its stack, whichever way that comes about."""
    if do not in _last_things:
        _last_things.append(do)


def keep(contents: object) -> None:
    """Have these freed by the system when the process ends, which takes no time; one by one, 50,000 tensors take some.

    In a program that uses the library nothing is kept.
    """
    if _State.own:
        _kept.append(contents)


def do_last_things() -> None:
    """Remove what nobody else will: the process is about to end, without waiting for its threads."""
    while _last_things:
        _last_things.pop()()


def leave(status: int) -> NoReturn:
    """End the process now. Threads that still compute end with it, where an interpreter that ends would crash."""
    do_last_things()
    os._exit(status)


@contextmanager
def patience() -> Iterator[None]:
    """While this lasts, Ctrl-C is only noted: whoever works here asks ``wants_end``, often.

    Where nobody did, it is a KeyboardInterrupt in the end.
    """
    if not _State.own:
        yield
        return
    _State.patient += 1
    try:
        yield
    finally:
        _State.patient -= 1
        if _State.asked and not _State.heard and not _State.patient:
            _State.heard = True
            raise KeyboardInterrupt


def wants_end() -> bool:
    """Return whether Ctrl-C was pressed; whoever asks has to act upon it."""
    _State.heard |= _State.asked
    return _State.asked


def commit() -> None:
    """The result is being published: from now on it is too late for Ctrl-C, and what is left takes no time."""
    from threading import current_thread, main_thread

    if _State.own and not _State.asked and current_thread() is main_thread():
        _State.patient += 1


def _interrupted(number: int, frame: FrameType | None) -> None:
    if _State.asked:
        leave(_INTERRUPTED)
    _State.asked = True
    if not _State.patient:
        _State.heard = True
        raise KeyboardInterrupt


def _unraisable(lost: UnraisableHookArgs) -> None:
    """Repeat what a signal raised where Python can raise nothing: in ``__del__``, in a weak reference."""
    if isinstance(lost.exc_value, Interrupt):
        lost.exc_value.again()
    elif issubclass(lost.exc_type, KeyboardInterrupt):
        _State.asked = _State.heard = False
        send_again(signal.SIGINT)
    else:
        sys.__unraisablehook__(lost)


def send_again(number: int) -> None:
    """Send a signal to the main thread in a moment, when it is somewhere else."""
    from threading import Timer

    again = Timer(_AGAIN, _send, (number,))
    again.daemon = True
    again.start()


def _send(number: int) -> None:
    """Signal the main thread, also while it waits for the system: a signal ends that, a flag does not."""
    from threading import main_thread

    thread = main_thread().ident
    if hasattr(signal, "pthread_kill") and thread is not None:
        signal.pthread_kill(thread, number)
    else:
        signal.raise_signal(number)


# ---- Python's cyclic garbage collector, paused while a great many objects are made that are all kept


class collector_paused:  # called as a function is, in a with or around another one
    """Inside this block, or this function, the collector does not run by itself.

    It would walk the growing tree again and again, which makes reading two to five times slower. In the command line's
    own process it does not walk a large tree afterwards either, for the same reason: the tree stays to the end, or goes
    without the collector's help.
    """

    __slots__ = ("_before", "_collecting")

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
        if self._collecting:
            gc.disable()
            self._before = gc.get_count()[0]

    def __exit__(self, *error: object) -> None:
        if self._collecting:
            if _State.own and gc.get_count()[0] - self._before > _COLLECTOR[0]:
                gc.freeze()
            gc.enable()

    def __call__(self, work: Work) -> Work:
        """Return the function, paused whenever it is called."""

        @wraps(work)
        def paused(*values: Any, **named: Any) -> Any:
            with collector_paused():
                return work(*values, **named)

        return cast("Work", paused)


# ---- what stands behind ``--`` on the command line: the arguments of the code that ``--model`` names


# what the user's code finds as its command line, behind the name of its file
ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("arguments", default=())


def complete(command: str) -> str:
    """Return the command with these arguments at its end, where it names a model.

    It would not do the same without them.
    """
    theirs = ARGUMENTS.get()
    if not theirs or " --model " not in command:
        return command
    from ckptdoctor.shell import joined

    return f"{command} -- {joined(*theirs)}"
