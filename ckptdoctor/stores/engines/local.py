"""Examines batches in processes of this machine.

Each worker is a Python of its own (``worker``), to which units go through its standard input and rows come back
through its standard output, those of a moment in one frame. So it is known about where one was when it died, was
killed by the system or fell silent; another takes its place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any

from ckptdoctor.crash import wants_trace
from ckptdoctor.stores.engines.engine import Done
from ckptdoctor.stores.engines.worker import read_frame, write_frame
from ckptdoctor.stores.order import Batch

SILENCE = 600.0  # seconds that one unit may take; in a deep examination longer, by its bytes
_PACE = 10_000_000  # bytes a second that a deep examination reads at least
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from ckptdoctor.stores.engines.worker import main; main()"
)


class LocalEngine:
    """A pool of processes, as many as this one may use processors (``jobs``: None)."""

    def __init__(self, jobs: int | None = None, silence: float = SILENCE) -> None:
        self.jobs = jobs or processors()
        self.workers = self.jobs
        self.width = self.jobs + 1  # one waits, so that no worker does
        self._silence = silence
        self._said: SimpleQueue[tuple[_Worker, Any]] = SimpleQueue()
        self._pool: list[_Worker] = []
        self._waiting: list[tuple[int, Batch]] = []

    def submit(self, number: int, batch: Batch) -> None:
        """Give it to a worker that is idle, or to the next that will be."""
        self._waiting.append((number, batch))
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting:
            worker = next((each for each in self._pool if each.number is None), None)
            if worker is None:
                if len(self._pool) >= self.jobs:
                    return
                worker = _Worker(self._said)
                self._pool.append(worker)
            worker.take(*self._waiting.pop(0))

    def completed(self, seconds: float) -> list[Done]:
        """Return what workers gave back, and the failure of those that are gone."""
        found: list[Done] = []
        try:
            found += self._heard(*self._said.get(timeout=seconds))
            while True:
                found += self._heard(*self._said.get_nowait())
        except Empty:
            pass
        for worker in [each for each in self._pool if each.is_silent(self._silence)]:
            found.append(self._lost(worker, f"nothing was heard for {self._silence:,.0f} seconds"))
        self._hand_out()
        return found

    def _heard(self, worker: _Worker, frame: Any) -> list[Done]:
        if worker not in self._pool:
            return []
        if frame is None:  # its output has ended
            return [self._lost(worker, worker.death())] if worker.number is not None else self._forget(worker)
        worker.heard = monotonic()
        number, rows, over = frame
        worker.at += len(rows)
        if over:
            worker.number = None
            self._hand_out()
        return [Done(number, rows, over)]

    def _forget(self, worker: _Worker) -> list[Done]:
        self._pool.remove(worker)
        worker.kill()
        return []

    def _lost(self, worker: _Worker, why: str) -> Done:
        number = worker.number
        assert number is not None
        self._forget(worker)
        return Done(number, over=True, failure=why)

    def close(self) -> None:
        """Kill what still works: what it has not given back is examined again another time."""
        for worker in self._pool:
            worker.kill()
        self._pool.clear()
        self._waiting.clear()


class _Worker:
    """One process, the number of the batch that it has (None: it is idle), and how far in that it is."""

    def __init__(self, said: SimpleQueue[tuple[_Worker, Any]]) -> None:
        self.number: int | None = None
        self.at = 0
        self.heard = monotonic()
        self._batch = Batch(())
        quiet = None if wants_trace() else subprocess.DEVNULL
        command = [sys.executable, "-c", _START, json.dumps(sys.path)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet, start_new_session=os.name != "nt"
        )
        Thread(target=self._listen, args=(said,), daemon=True).start()

    def _listen(self, said: SimpleQueue[tuple[_Worker, Any]]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            while (frame := read_frame(output)) is not None:
                said.put((self, frame))
        said.put((self, None))

    def take(self, number: int, batch: Batch) -> None:
        """Begin with a batch. A worker that is gone says so by the end of its output."""
        self.number, self.at, self._batch, self.heard = number, 0, batch, monotonic()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            write_frame(self._process.stdin, (number, batch.units, batch.how, batch.rate))

    def is_silent(self, silence: float) -> bool:
        """Return whether the unit that it is at takes longer than any should."""
        if self.number is None or self.at >= len(self._batch.units):
            return False
        size = sum(each[2] for each in self._batch.units[self.at][3]) if self._batch.deep else 0
        pace = min(_PACE, self._batch.rate / 4) if self._batch.rate else _PACE  # some bytes are read more than once
        return monotonic() - self.heard > silence + size / pace

    def death(self) -> str:
        """Return how the process ended, once its output has."""
        status = self._process.wait()
        if status >= 0:
            return f"the process that examined it ended with status {status}"
        by = "the system, perhaps because memory ran out" if status == -9 else f"signal {-status}"
        return f"the process that examined it was killed by {by}"

    def kill(self) -> None:
        """End it now."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
