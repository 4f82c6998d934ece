"""Reading every byte: how far it is, stopping it, and what was not read."""

from __future__ import annotations

import asyncio
import time

import pytest
import torch

from ckptdoctor.checkpoint.progress import Progress, Work
from ckptdoctor.tui.app import BrowserApp
from ckptdoctor.tui.models.pace import Pace, rough_duration
from tests.tui import NORMAL, browse, press, settled, text_of


def test_a_rate_once_it_means_something():
    """First the share alone, then bytes a second and the time left; another piece of work begins anew."""
    pace = Pace()
    assert pace.said(Progress("values", 0, 1000), 10.0) == ["values 0 %"]
    assert pace.said(Progress("values", 100, 1000), 10.1) == ["values 10 %"]
    assert pace.said(Progress("values", 500, 1000), 11.0) == ["values 50 %", "500 bytes/s", "1 s left"]
    assert pace.said(Progress("checksums", 10, 1000), 12.0) == ["checksums 1 %"]
    assert pace.said(Progress("nothing", 0, 0), 12.0) == ["nothing"]
    assert pace.said(Progress("unpacking", 3_000, 0), 12.0) == ["unpacking 3.0 kB"]


@pytest.mark.parametrize(("seconds", "said"), [(0.2, "0 s"), (59, "59 s"), (61, "1 min"), (7800, "2 h 10 min")])
def test_duration(seconds, said):
    """In the unit that is told at a glance."""
    assert rough_duration(seconds) == said


def test_to_the_end():
    """Then it says that every byte was read."""
    assert "every byte was read" in browse("resnet.pt", "e")


@pytest.fixture
def slow(monkeypatch, tmp_path):
    """A file with a NaN in its first tensor, whose values are read slowly."""
    from ckptdoctor.values import examine

    weights = {f"layer{index}.weight": torch.ones(64, 64) for index in range(40)}
    weights["layer0.weight"][0, 0] = float("nan")
    torch.save(weights, tmp_path / "slow.pt")
    real = examine.examine_values

    def slowly(checkpoint, source, work, **options):
        def waiting(progress):
            time.sleep(0.1)
            work.reach(progress.done)

        return real(checkpoint, source, Work("values", work.total, waiting), **options)

    monkeypatch.setattr(examine, "examine_values", slowly)
    monkeypatch.chdir(tmp_path)
    return "slow.pt"


def test_escape_stops_and_keeps_what_was_found(slow):
    """The title says how far it is; afterwards what was found is there, and what was not read is said."""

    async def run():
        app = BrowserApp(slow)
        async with app.run_test(size=NORMAL) as pilot:
            await settled(pilot)
            await pilot.press("e")
            while "values" not in text_of(app).split("\n")[0] or "left" not in text_of(app).split("\n")[0]:
                await pilot.pause(0.05)
            during = text_of(app).split("\n")[0]
            await press(pilot, "escape")
            return during, text_of(app), [each.code for each in app.screen.findings], app.screen.report

    during, after, codes, report = asyncio.run(run())
    assert "bytes/s" in during or "B/s" in during
    assert "esc stops" in during
    assert report.interrupted
    assert "V651" in codes
    assert "not read: the rest of the checksums and values (interrupted)" in after


def test_escape_without_reading_does_nothing():
    """It is the same screen."""
    assert browse("resnet.pt", "escape") == browse("resnet.pt")
