"""Draws the progress of long work: one line on stderr that is drawn again and again, and gone when it is over."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

from ckptdoctor.checkpoint import process
from ckptdoctor.checkpoint.progress import Progress, heard, now_and_then
from ckptdoctor.cli.console import only_problems, width
from ckptdoctor.diagnose.events import Event, Opened, Recognised
from ckptdoctor.rendering.numbers import count, size

_BAR = 24  # columns
_QUIET = 0.5  # seconds before anything is drawn: most examinations are over by then
NOTHING_WRITTEN = "Interrupted: nothing was written."
_EVERY = 0.2  # seconds between two lines while nothing is heard
_CLEAR = "\r\x1b[K"


class ProgressBar:
    """Draws on a terminal (None: stderr), and nothing anywhere else.

    A thread draws the line again while nothing is heard: who reads headers, or imports torch, has nothing to say
    meanwhile. ``what`` is what is done until something is heard.
    """

    def __init__(self, stream: TextIO | None = None, what: str = "reading headers") -> None:
        self._stream = sys.stderr if stream is None else stream
        self._columns = None if only_problems.get() else width(self._stream)
        self._now: Progress | None = None  # None: nothing is being done, and others may write
        self._began = 0.0
        self._drawn = False
        if self._columns is not None:
            from threading import Event, RLock, Thread  # nobody else needs them

            self._lock, self._over = RLock(), Event()
            self.hear(Progress(what, 0, 0))
            Thread(target=self._go_on, name="ckptdoctor-line", daemon=True).start()

    def hear(self, event: Event) -> None:
        """Draw what an event says of progress; any other event clears the line."""
        if self._columns is None:
            return
        if isinstance(event, (Recognised, Opened)):
            event = Progress("reading headers" if isinstance(event, Recognised) else "checking", 0, 0)
        if not isinstance(event, Progress):
            self.clear()
            return
        with self._lock:
            before = self._now
            if before is None or event.what != before.what or event.done < before.done:
                self._began = monotonic()
            self._now = event
            self._show()

    def _go_on(self) -> None:
        while not self._over.wait(_EVERY):
            with self._lock:
                if self._now is not None and not self._now.done == self._now.total > 0:
                    self._show()

    def _show(self) -> None:
        assert self._now is not None and self._columns is not None
        seconds = monotonic() - self._began
        if seconds >= _QUIET or self._drawn:
            self._draw(line(self._now, seconds)[: self._columns - 1])

    def _draw(self, text: str) -> None:
        process.before_leaving(self.clear)
        self._drawn = True  # before it is: Ctrl-C may come between
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(_CLEAR + text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away, if there is one."""
        if self._columns is None:
            return
        with self._lock:
            self._now = None
            if self._drawn:
                self._stream.write(_CLEAR)
                self._stream.flush()
                self._drawn = False

    def close(self) -> None:
        """Take it away for good."""
        if self._columns is not None:
            self._over.set()
        self.clear()


@contextmanager
def drawn(otherwise: str = "Interrupted.", what: str = "reading headers") -> Iterator[ProgressBar]:
    """Draw a line for all work that is done meanwhile, at first ``what``. Where Ctrl-C ends it, ``otherwise`` is said.

    Raises KeyboardInterrupt then, when the line is gone.
    """
    bar = ProgressBar(what=what)
    try:
        with heard(now_and_then(bar.hear)):
            yield bar
    except KeyboardInterrupt:
        raise KeyboardInterrupt(otherwise) from None
    finally:
        bar.close()


def line(event: Progress, seconds: float) -> str:
    """Return ``values  [#####-----]  41 %  822 MB of 2.0 GB  3.1 GB/s  1 s left``, or how long it takes already."""
    amount = size if not event.unit else count
    if not event.total:
        so_far = f"{amount(event.done)} {event.unit}".rstrip() if event.done else ""
        return "  ".join([each for each in (event.what, so_far, _duration(seconds)) if each])
    total = event.total
    share = min(1.0, event.done / total)
    rate = event.done / seconds if seconds > 0 else 0.0
    full = round(_BAR * share)
    parts = [
        event.what,
        f"[{'#' * full}{'-' * (_BAR - full)}]",
        f"{int(100 * share):3} %",
        f"{amount(min(event.done, total))} of {amount(event.total)} {event.unit}".rstrip(),
    ]
    if rate:
        parts += [f"{amount(int(rate))}/s", f"{_duration((total - min(event.done, total)) / rate)} left"]
    return "  ".join(parts)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
