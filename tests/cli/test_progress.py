"""The line that says how far a deep examination is."""

from __future__ import annotations

import io

import pytest

from ckptdoctor.checkpoint.progress import Progress
from ckptdoctor.cli import progress
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
