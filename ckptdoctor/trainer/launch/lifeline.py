"""No orphans: a rank ends when its launcher does, in whatever way the launcher ends.

The launcher holds the only write end of a pipe and never writes; each rank holds a read end. However the launcher ends,
``kill -9`` included, the system closes its end, and the read returns. A thread waits for that, so it does not matter
what the main thread is doing, or whether it ever comes back from it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import threading
from pathlib import Path


def hold(pipe: int, folder: Path) -> None:
    """End the process group of this process when the pipe is closed at the other end, and remove the run's folder."""
    _wake_when_closed(pipe)
    threading.Thread(target=_wait, args=(pipe, folder), name="lifeline", daemon=True).start()


def _wait(pipe: int, folder: Path) -> None:
    os.read(pipe, 1)
    shutil.rmtree(folder, ignore_errors=True)  # the launcher cannot do it any more
    os.killpg(os.getpgrp(), signal.SIGKILL)  # with the workers of a data loader, and whatever else was started


def _wake_when_closed(pipe: int) -> None:
    """On Linux, let the system continue this process when the pipe is closed: a stopped one has no running threads.

    A descriptor can send a signal of one's choice when something happens on it: fcntl(2), F_SETOWN and F_SETSIG.
    """
    if hasattr(fcntl, "F_SETSIG"):
        with contextlib.suppress(OSError):  # not every emulation of Linux knows it, and only stopped processes need it
            fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGCONT)
            fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
