"""More workers help as much as they can: a driver on a clock that no processor moves counts who waits, and for what."""

from __future__ import annotations

import heapq

import pytest

from ckptdoctor.stores.audit import AuditRequest, audit
from ckptdoctor.stores.engines.engine import Done
from ckptdoctor.stores.examine import failed
from ckptdoctor.stores.listing import unit_of
from tests.stores.simulated import SimulatedStore, installed

REQUEST, LISTING = 0.05, 0.05 / 8  # seconds; several folders are listed at once
STORE, MANY = "simulated://5-24-20", 480  # files, and folders of five files


class Clock:
    """The time, which goes on where somebody waits for a request, and nowhere else."""

    def __init__(self):
        self.now = self.listed = 0.0

    def ask(self, store, what):
        """A listing takes its time; what a worker asks for is counted by the engine."""
        assert what == "ls"
        self.now += LISTING
        self.listed = self.now


class Timed:
    """Workers, each of which asks a request for each file of a unit; a batch is begun when its worker has none."""

    def __init__(self, clock, workers):
        self.clock, self.workers, self.width = clock, workers, workers + 1
        self.free = [0.0] * workers  # since when, or until when not
        self.begun = None  # when the first batch was
        self.worked = 0.0
        self.waiting, self.coming = [], []  # batches, and rows with the time at which they come

    def submit(self, number, batch):
        """Have it wait for a worker."""
        self.begun = self.clock.now if self.begun is None else self.begun
        self.waiting.append((number, batch))
        self._hand_out()

    def _hand_out(self):
        while self.waiting and min(self.free) <= self.clock.now:
            worker = self.free.index(min(self.free))
            number, batch = self.waiting.pop(0)
            at = self.clock.now
            for each in batch.units:
                unit = unit_of(each)
                at += REQUEST * len(unit.files)
                heapq.heappush(self.coming, (at, number, False, unit.candidate.path, unit))
            heapq.heappush(self.coming, (at, number, True, "", None))
            self.worked += at - self.clock.now
            self.free[worker] = at

    def completed(self, seconds):
        """What has come by now, or comes within so many seconds."""
        first = self.coming[0][0] if self.coming else self.clock.now + seconds
        self.clock.now = max(self.clock.now, min(first, self.clock.now + seconds))
        found = []
        while self.coming and self.coming[0][0] <= self.clock.now:
            _, number, over, _, unit = heapq.heappop(self.coming)
            found.append(Done(number, over=True) if over else Done(number, (failed(unit, "not read"),)))
        self._hand_out()
        return found

    def close(self):
        """Nothing is open."""


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """Gives the clock and the engine after an audit by so many workers."""
    installed(tmp_path)
    monkeypatch.setattr("ckptdoctor.stores.listing._LATE", float("inf"))  # by the real clock

    def run(workers):
        clock = Clock()
        monkeypatch.setattr("ckptdoctor.stores.audit.monotonic", lambda: clock.now)
        monkeypatch.setattr(SimulatedStore, "_asked", lambda store, what: clock.ask(store, what))
        engine = Timed(clock, workers)
        done = audit(AuditRequest((STORE,), str(tmp_path / f"{workers}.db")), engine)
        assert done.examined == done.listed == MANY
        return clock, engine

    return run


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_workers_are_never_idle_while_something_waits(workers, timed):
    """Eight are eight times as fast as one as long as listing is faster than they: nobody waits for its end."""
    alone, _ = timed(1)
    clock, engine = timed(workers)
    assert alone.now / clock.now / workers > 0.95
    assert engine.begun < clock.listed / 20
    assert engine.worked / workers > 0.95 * (clock.now - engine.begun)
