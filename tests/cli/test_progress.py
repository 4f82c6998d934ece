"""The line that says how far a deep examination is."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace

import pytest
import torch

from ckptdoctor.checkpoint.progress import Progress
from ckptdoctor.cli import main, progress
from ckptdoctor.cli.console import only_problems
from ckptdoctor.cli.progress import ProgressBar, line
from ckptdoctor.diagnose.events import Finished


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "ascii"

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 80 columns, on which lines are drawn at once."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(progress, "_QUIET", 0)
    return Terminal()


def test_share_bytes_rate_and_time_left():
    """All four, in one line."""
    text = line(Progress("values", 500_000_000, 2_000_000_000), 0.25)
    assert text == "values  [######------------------]   25 %  500 MB of 2.0 GB  2.0 GB/s  1 s left"


@pytest.mark.parametrize(("left", "text"), [(59, "59 s"), (150, "2 min"), (7_300, "2 h 1 min")])
def test_long_times(left, text):
    """In seconds, minutes or hours."""
    assert line(Progress("values", 1_000, 1_000 * (left + 1)), 1.0).endswith(f"{text} left")


def test_nothing_to_read():
    """What has no bytes says how long it has taken; what has nobody knows how many, those that are done, too."""
    assert line(Progress("waiting for the disk", 0, 0), 3.2) == "waiting for the disk  3 s"
    assert line(Progress("unpacking", 822_000_000, 0), 3.2) == "unpacking  822 MB  3 s"


def test_the_line_is_gone_afterwards(terminal):
    """It is drawn over and over, fits the terminal, and any other event clears it."""
    bar = ProgressBar(terminal)
    bar.hear(Progress("values", 0, 100))
    bar.hear(Progress("values", 50, 100))
    assert all(len(each) < 90 for each in terminal.getvalue().split("\r"))
    bar.hear(Finished(None))
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert "50 %" in terminal.getvalue()


def test_nothing_is_drawn_where_nobody_looks():
    """A pipeline's stderr stays empty."""
    stream = io.StringIO()
    bar = ProgressBar(stream)
    bar.hear(Progress("values", 50, 100))
    bar.hear(Finished(None))
    assert stream.getvalue() == ""


@pytest.fixture
def quick(monkeypatch):
    """The line is drawn again often."""
    monkeypatch.setattr(progress, "_EVERY", 0.01)


def drawn_until(terminal, words):
    """What the terminal shows once these words are on it; a thread draws them."""
    until = time.monotonic() + 20
    while words not in terminal.getvalue():
        assert time.monotonic() < until, terminal.getvalue()
        time.sleep(0.01)
    return terminal.getvalue()


def test_work_that_says_nothing_is_drawn_as_well(terminal, quick):
    """From the beginning, with the seconds that it has taken; once the bar is closed nothing is drawn any more."""
    bar = ProgressBar(terminal)
    drawn_until(terminal, "reading headers  0 s")
    bar.hear(Progress("loading torch…", 0, 0))
    assert "loading torch?  0 s" in drawn_until(terminal, "loading torch")  # this terminal has ASCII alone
    bar.close()
    shown = terminal.getvalue()
    assert shown.endswith("\r\x1b[K")
    time.sleep(0.05)
    assert terminal.getvalue() == shown


def test_nothing_is_drawn_while_others_write(terminal, quick):
    """Between an event that ends work and the next that begins some, the terminal is left alone."""
    bar = ProgressBar(terminal)
    bar.hear(Finished(None))
    shown = terminal.getvalue()
    time.sleep(0.05)
    assert terminal.getvalue() == shown
    bar.hear(Progress("values", 1, 100))
    assert len(drawn_until(terminal, "values")) > len(shown)
    bar.close()


def test_what_is_done_needs_no_redrawing(terminal, quick):
    """The rate of work that is over stays what it was."""
    bar = ProgressBar(terminal)
    bar.hear(Progress("values", 100, 100))
    shown = drawn_until(terminal, "100 %")
    time.sleep(0.05)
    assert terminal.getvalue() == shown
    bar.close()


def test_quiet_draws_nothing(terminal):
    """--quiet is for progress, too."""
    before = only_problems.set(True)
    try:
        bar = ProgressBar(terminal)
        bar.hear(Progress("values", 50, 100))
        bar.close()
    finally:
        only_problems.reset(before)
    assert terminal.getvalue() == ""


def test_torch_is_named_where_it_takes_the_time(tmp_path, monkeypatch):
    """Before the user's code is imported, unless torch is there already; then the building of the model is."""
    torch.save({"weight": torch.ones(2, 1), "bias": torch.ones(2)}, tmp_path / "m.pt")
    (tmp_path / "late_nets.py").write_text("import torch\nnet = torch.nn.Linear(1, 2)\n")
    monkeypatch.chdir(tmp_path)
    told = []
    monkeypatch.setattr(progress, "now_and_then", lambda hear: lambda event: told.append(event.what))
    assert main.run(["check", "m.pt", "--model", "late_nets.py:net", "-q"]) == 0
    monkeypatch.setattr("ckptdoctor.target.model.sys", SimpleNamespace(modules={}))
    assert main.run(["check", "m.pt", "--model", "late_nets.py:net", "-q"]) == 0
    assert told == ["building the model", "loading torch…", "building the model"]
