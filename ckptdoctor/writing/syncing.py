"""Brings the output to the disk while it is still being written and verified, so that nobody waits twice."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from ckptdoctor.writing.system import sync_data

_TICK = 0.1  # seconds
_PAUSE = 0.05  # seconds between two rounds; a round with nothing new to write costs next to nothing


class BackgroundSync:
    """A thread that keeps syncing the file ``fd``. The disk works while the rest of the process copies and compares."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._complete = threading.Event()
        self._over = threading.Event()  # Ctrl-C in Thread.join would make Python take the thread for one that ended
        self._abandoned = False
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="ckptdoctor-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._complete.wait(_PAUSE):
                sync_data(self._fd)
            if not self._abandoned:
                sync_data(self._fd)
        except OSError as error:  # a lost write is reported once for each open file: it must not get lost here
            self._error = error
        finally:
            self._over.set()

    def complete(self) -> None:
        """Everything has been written: one last round."""
        self._complete.set()

    def wait(self, tick: Callable[[], None] = lambda: None) -> None:
        """Wait for the last round, with a ``tick`` now and then. Raises the OSError that any of them met."""
        self._complete.set()
        while not self._over.wait(_TICK):
            tick()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """The file is going to be removed: stop as soon as possible. What is not on the disk yet need not get there."""
        self._abandoned = True
        self._complete.set()
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
        self._over.wait()
