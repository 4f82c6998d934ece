"""Brings the output to the disk while it is still being written and verified, so that nobody waits twice."""

from __future__ import annotations

import threading

from ckptdoctor.writing.system import sync_data

_PAUSE = 0.05  # seconds between two rounds; a round with nothing new to write costs next to nothing


class BackgroundSync:
    """A thread that keeps syncing the file ``fd``. The disk works while the rest of the process copies and compares."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._complete = threading.Event()
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

    def complete(self) -> None:
        """Everything has been written: one last round."""
        self._complete.set()

    def wait(self) -> None:
        """Wait for the last round. Raises the OSError that any of them met."""
        self._complete.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """The file is going to be removed: stop as soon as possible."""
        self._abandoned = True
        self._complete.set()
        self._thread.join()
