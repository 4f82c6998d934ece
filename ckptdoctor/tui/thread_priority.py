"""The screen comes before the threads that read and examine.

Python runs one thread at a time, and a thread that computes gives way only when another one has asked for so long.
The screen asks for hardly any time; while it answers a key it is asked for more, so that it does so in few goes.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")

_WAITING = 0.0002  # seconds that the screen waits for a thread that computes; Python's own 5 ms add up to a felt delay
# seconds that such a thread waits for the screen; but the screen as well, whenever it had to wait in between, and the
# threads between it and the terminal: 20 ms added up to keys that took 80, when a key was answered in several goes
_DRAWING = 0.002
_THREADS = 8  # more than the browser has work for at a time
_UNASKED = 0.005  # seconds in which the screen, while it has things to do, does not look for news: that gives way too


class _Turns(selectors.DefaultSelector):
    """Looks for news as any event loop does, and settles who waits how long for whom."""

    looked = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what happens within so many seconds; while it waits, the screen may interrupt threads soonest."""
        if timeout == 0 and perf_counter() - self.looked < _UNASKED:
            return []
        sys.setswitchinterval(_WAITING)
        found = super().select(timeout)
        sys.setswitchinterval(_DRAWING)
        self.looked = perf_counter()
        return found


def _started_threads() -> ThreadPoolExecutor:
    """Return threads that run already: to start one, the screen would wait for it, and it for one that computes."""
    threads = ThreadPoolExecutor(_THREADS)
    together = Barrier(_THREADS)
    for _ in range(_THREADS):
        threads.submit(together.wait)
    return threads


def run(program: Coroutine[Any, Any, T]) -> T:
    """Run a program of the screen from start to end, as ``asyncio.run`` does."""
    if sys.platform == "win32":  # whose own loop is no loop of selectors
        return asyncio.run(program)
    loop = asyncio.SelectorEventLoop(_Turns())
    before = sys.getswitchinterval()
    try:
        asyncio.set_event_loop(loop)
        loop.set_default_executor(_started_threads())
        return loop.run_until_complete(program)
    finally:
        sys.setswitchinterval(before)
        asyncio.set_event_loop(None)
        loop.close()
