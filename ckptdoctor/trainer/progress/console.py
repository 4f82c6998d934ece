"""The console of a run, which may outlast whoever watches it."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console


class LastingConsole(Console):
    """A console that falls silent when nobody reads any more (``| head``), where rich would end the process."""

    def on_broken_pipe(self) -> None:
        """Write to nowhere from now on: what a run is for lies in its folder."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


def console(stream: TextIO | None) -> Console:
    """A console on ``stream`` (None: stdout) that moves the cursor on real terminals only.

    Without being told, rich takes any stream for a terminal where FORCE_COLOR is set, as it is on many build servers.
    """
    file = sys.stdout if stream is None else stream
    return LastingConsole(file=file, force_interactive=None if file.isatty() else False)
