"""Storages of distant files are fetched in runs."""

from __future__ import annotations

from ckptdoctor.checkpoint import Extent, Storage
from ckptdoctor.loading import storages as runs
from ckptdoctor.loading.storages import Runs


class Far:
    """A distant file that writes down what is read of it."""

    distant = True

    def __init__(self, data):
        self.data = data
        self.reads = []

    def part(self, file):
        return self

    def read(self, offset, length):
        self.reads.append((offset, length))
        return self.data[offset : offset + length]


def storages(*places):
    return [
        Storage(str(number), length, None, "cpu", Extent("a", *place))
        for number, place in enumerate(places)
        for length in place[1:]
    ]


def test_what_lies_close_together_is_fetched_together(monkeypatch):
    """Up to a length, and not over large gaps; each byte once, in whatever order they are asked for."""
    monkeypatch.setattr(runs, "_LONGEST", 100)
    monkeypatch.setattr(runs, "_GAP", 10)
    far = Far(bytes(range(256)) * 4)
    wanted = storages((0, 20), (25, 20), (60, 10), (72, 20), (95, 50), (900, 8))
    made = Runs(far, wanted)
    for storage in reversed(wanted):
        extent = storage.extent
        assert made.get(extent) == far.data[extent.offset : extent.offset + extent.length]
    assert far.reads == [(900, 8), (60, 85), (0, 45)]
    assert made._fetched == {}


def test_storages_that_share_bytes_are_fetched(monkeypatch):
    """A hostile file may say that two overlap, and ask for one twice."""
    far = Far(bytes(range(200)))
    wanted = storages((0, 50), (20, 50), (20, 50), (0, 0))
    made = Runs(far, wanted)
    for storage in [*wanted[:3], *wanted[:3]]:
        extent = storage.extent
        assert made.get(extent) == far.data[extent.offset : extent.offset + extent.length]
