"""Puts the speed of long work, and the time it still takes, in a few words."""

from __future__ import annotations

from time import monotonic

from ckptdoctor.checkpoint.progress import Progress
from ckptdoctor.rendering.numbers import size

_SETTLED = 0.5  # seconds after which a rate means something


class Pace:
    """Follows the events of one piece of work after another."""

    def __init__(self) -> None:
        self._what = ""
        self._began = 0.0

    def said(self, progress: Progress, now: float | None = None) -> list[str]:
        """Return the pieces, most important first: ``values 41 %``, ``3.1 GB/s``, ``2 s left``."""
        now = monotonic() if now is None else now
        if progress.what != self._what or progress.done == 0:
            self._what, self._began = progress.what, now
        total, done = progress.total, progress.done
        if not total:
            return [f"{progress.what} {size(done)}" if done else progress.what]
        pieces = [f"{progress.what} {100 * done // total} %"]
        seconds = now - self._began
        if seconds >= _SETTLED and done:
            rate = done / seconds
            pieces += [f"{size(int(rate))}/s", f"{rough_duration((total - done) / rate)} left"]
        return pieces


def rough_duration(seconds: float) -> str:
    """Return so many seconds in words: ``12 s``, ``3 min``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
