"""Being asked to stop: Ctrl-C and the signals of a scheduler set a flag, and the loop looks at it between steps.

A signal may arrive in the middle of anything: of a step, of a save, while a peer waits. So its handler does nothing but
take note, and the run ends where it is whole. Whoever cannot wait asks with Ctrl-C a second time.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))
"""What asks a run to stop. Slurm sends SIGUSR1 ahead of the time limit when told to: ``--signal=USR1@120``."""


class StopRequest:
    """Whether somebody asked this process to stop, and how."""

    def __init__(self) -> None:
        self.asked = False
        self.reason: str | None = None
        """What asked: "Ctrl-C", "SIGTERM" or "SIGUSR1"."""

    @contextmanager
    def installed(self) -> Iterator[StopRequest]:
        """Listen to the signals; afterwards they do what they did before.

        Only the main thread can listen: in any other this changes nothing, and ``asked`` may be set by hand.
        """
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before: dict[signal.Signals, Any] = {number: signal.signal(number, self._note) for number in SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                # None: a handler that was not installed from Python, and that Python cannot put back
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True
        self.reason = self.reason or ("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)
