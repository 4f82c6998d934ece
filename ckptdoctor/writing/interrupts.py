"""Ends a process that is told to stop only after what must be cleaned up has been."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from ckptdoctor.checkpoint.process import Interrupt, before_leaving, do_last_things, is_ours

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class _Ended(Interrupt):
    """A signal that ends the process has arrived; ``arrived`` is where its handler notes that."""

    def __init__(self, number: int, arrived: list[int]) -> None:
        super().__init__(number)
        self.arrived = arrived

    def again(self) -> None:
        """Send it again, as the first one."""
        self.arrived.clear()
        super().again()


@contextmanager
def cleaned_up() -> Iterator[None]:
    """While this lasts, SIGTERM and SIGHUP unwind the stack like Ctrl-C does, and end the process after that.

    Only in the main thread (others get no signals), and only where the process has no handlers of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ENDING}
    taken = [number for number in _ENDING if before[number] in (signal.SIG_DFL, _at_once)]
    ended: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        if not ended:  # a second one must not interrupt the cleaning up
            ended.append(number)
            raise _Ended(number, ended)

    try:
        for number in taken:
            signal.signal(number, end)
        yield
    except _Ended:
        pass
    finally:
        for number in taken:
            signal.signal(number, before[number])
        if ended:
            _end(ended[0])


def before_the_end(do: Callable[[], None]) -> None:
    """Have ``do`` called before the command line's process ends, by SIGTERM or SIGHUP too.

    Elsewhere it is called only where ``cleaned_up`` lasts: signals are the business of the program that uses us.
    """
    before_leaving(do)
    if is_ours() and threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _at_once)


def _at_once(number: int, frame: FrameType | None) -> None:
    _end(number)


def _end(number: int) -> NoReturn:
    """End the process by the signal, so that whoever waits for it knows."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)  # a second one must not interrupt this
    do_last_things()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)  # where the signal does not end the process at once
