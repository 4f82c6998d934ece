"""Ends a process that is told to stop only after what must be cleaned up has been."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class _Ended(BaseException):
    """A signal that ends the process has arrived. Not an Exception: nothing on the way may take it for an error."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def cleaned_up() -> Iterator[None]:
    """While this lasts, SIGTERM and SIGHUP unwind the stack like Ctrl-C does, and end the process after that.

    Only in the main thread (others get no signals), and only where the process has no handlers of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    ended: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        if not ended:  # a second one must not interrupt the cleaning up
            ended.append(number)
            raise _Ended(number)

    try:
        for number in taken:
            signal.signal(number, end)
        yield
    except _Ended:
        pass
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        if ended:
            os.kill(os.getpid(), ended[0])
            raise SystemExit(128 + ended[0])  # where the signal does not end the process at once
