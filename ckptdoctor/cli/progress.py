"""Draws the progress of long work: one line on stderr that is drawn again and again, and gone when it is over."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

from ckptdoctor.checkpoint import process
from ckptdoctor.checkpoint.progress import Progress, heard, now_and_then
from ckptdoctor.cli.console import width
from ckptdoctor.diagnose.events import Event
from ckptdoctor.rendering.numbers import size

_BAR = 24  # columns
_QUIET = 0.5  # seconds before anything is drawn: most examinations are over by then
NOTHING_WRITTEN = "Interrupted: nothing was written."
_CLEAR = "\r\x1b[K"


class ProgressBar:
    """Draws on a terminal (None: stderr), and nothing anywhere else."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._columns = width(self._stream)
        self._what = ""
        self._done = 0
        self._began = 0.0
        self._drawn = False

    def hear(self, event: Event) -> None:
        """Draw what an event says of progress; any other event clears the line."""
        if self._columns is None:
            return
        if not isinstance(event, Progress):
            self.clear()
            return
        if event.what != self._what or event.done < self._done:
            self._what, self._began = event.what, monotonic()
        self._done = event.done
        seconds = monotonic() - self._began
        if seconds >= _QUIET or self._drawn:
            self._draw(line(event, seconds)[: self._columns - 1])

    def _draw(self, text: str) -> None:
        process.before_leaving(self.clear)
        self._drawn = True  # before it is: Ctrl-C may come between
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(_CLEAR + text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away, if there is one."""
        if self._drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._drawn = False


@contextmanager
def drawn(otherwise: str = "Interrupted.") -> Iterator[ProgressBar]:
    """A line for all work that is done meanwhile. Where Ctrl-C ends it, ``otherwise`` is what is said.

    Raises KeyboardInterrupt then, when the line is gone.
    """
    bar = ProgressBar()
    try:
        with heard(now_and_then(bar.hear)):
            yield bar
    except KeyboardInterrupt:
        raise KeyboardInterrupt(otherwise) from None
    finally:
        bar.clear()


def line(event: Progress, seconds: float) -> str:
    """``values  [#####-----]  41 %  822 MB of 2.0 GB  3.1 GB/s  1 s left``; without a total how long it has taken."""
    if not event.total:
        return "  ".join([event.what, *([size(event.done)] if event.done else []), _duration(seconds)])
    total = event.total
    share = min(1.0, event.done / total)
    rate = event.done / seconds if seconds > 0 else 0.0
    full = round(_BAR * share)
    parts = [
        event.what,
        f"[{'#' * full}{'-' * (_BAR - full)}]",
        f"{int(100 * share):3} %",
        f"{size(min(event.done, total))} of {size(event.total)}",
    ]
    if rate:
        parts += [f"{size(int(rate))}/s", f"{_duration((total - min(event.done, total)) / rate)} left"]
    return "  ".join(parts)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
