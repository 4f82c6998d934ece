"""The listener of a run: the terminal, the record and the page together."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckptdoctor.errors import WriteError
from ckptdoctor.trainer.events import EpochDone, StepDone
from ckptdoctor.trainer.progress.metrics import read
from ckptdoctor.trainer.progress.report import listener
from tests.trainer.progress.runs import FOONET, config, run

ROOT = Path(__file__).parents[3]


class Stream(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


def test_a_run_is_shown_and_recorded(tmp_path):
    """The stream gets the lines, the folder the record and the page, and nothing else."""
    told = config(out=str(tmp_path / "run"))
    stream = Stream(False)
    with listener(told, True, stream) as tell:
        for event in run(told):
            tell(event)
    assert "epoch 4/4: train loss" in stream.getvalue()
    assert len(read(str(tmp_path / "run" / "metrics.jsonl"))) == 10
    assert "Done at" in (tmp_path / "run" / "curves.html").read_text(encoding="utf-8")
    assert sorted(os.listdir(tmp_path / "run")) == ["curves.html", "metrics.jsonl"]


def test_the_other_ranks_are_silent(tmp_path, capsys):
    """Every rank may tell its events; only the first is heard, and the others do not even load rich."""
    told = config(out=str(tmp_path / "run"))
    with listener(told, False) as tell:
        for event in run(told):
            tell(event)
    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / "run").exists()


def test_a_silent_rank_does_not_load_rich():
    """rich is imported by the rank that speaks, when it begins to."""
    code = (
        "import sys; from ckptdoctor.trainer.config import RunConfig\n"
        "from ckptdoctor.trainer.progress.report import listener\n"
        "with listener(RunConfig(), False) as tell: pass\n"
        "print('rich' in sys.modules, 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout == "False False\n"


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "log"])
def test_whatever_happens_everything_is_closed(tmp_path, terminal):
    """An error within the block goes on its way; the cursor is back, the page is written, the record is whole."""
    told = config(out=str(tmp_path))
    stream = Stream(terminal)
    out, err = sys.stdout, sys.stderr
    with pytest.raises(KeyboardInterrupt), listener(told, True, stream) as tell:
        for event in run(told):
            if isinstance(event, StepDone) and event.epoch == 3:
                raise KeyboardInterrupt
            tell(event)
    assert (sys.stdout, sys.stderr) == (out, err)
    assert stream.getvalue().count("\x1b[?25h") == stream.getvalue().count("\x1b[?25l") == int(terminal)
    assert "In progress at" in (tmp_path / "curves.html").read_text(encoding="utf-8")
    assert [record["epoch"] for record in read(str(tmp_path / "metrics.jsonl")) if record["event"] == "EpochDone"] == [
        1,
        2,
    ]


def test_an_error_before_the_first_event_is_no_trouble(tmp_path):
    """Nothing has been opened then, and nothing is written."""
    with pytest.raises(KeyError), listener(config(out=str(tmp_path)), True, Stream(True)):
        raise KeyError
    assert os.listdir(tmp_path) == []


def test_a_run_goes_on_where_another_was_killed(tmp_path):
    """Epochs are never there twice, the half line is gone, and the new run knows the best epoch of the old one."""
    told = config(out=str(tmp_path))
    with listener(told, True, Stream(False)) as tell:
        for event in run(told, last=3):
            tell(event)
    log = tmp_path / "metrics.jsonl"
    log.write_bytes(log.read_bytes() + b'{"event": "Epoch')
    stream = Stream(False)
    with listener(told, True, stream) as tell:
        for event in run(told, first=3):
            tell(event)
    records = read(str(log))
    assert [record["epoch"] for record in records if record["event"] == "EpochDone"] == [1, 2, 3, 4]
    assert "resumed: after epoch 2" in stream.getvalue()
    assert "checkpoints: " + f"{tmp_path}/epoch-0004 and 3 before it" in stream.getvalue()


def test_the_page_is_there_after_the_first_epoch(tmp_path):
    """One need not wait for the end to look at the curves."""
    told = config(out=str(tmp_path))
    with listener(told, True, Stream(False)) as tell:
        for event in run(told):
            tell(event)
            if isinstance(event, EpochDone):
                break
        assert "epoch 1: test 30.0 %" in (tmp_path / "curves.html").read_text(encoding="utf-8")


def test_the_page_takes_a_small_share_of_the_time(tmp_path, monkeypatch):
    """When epochs take less time than the page, it is not written after each; but the last state always is."""
    from ckptdoctor.trainer.progress import report

    written = []

    def write(*words):
        written.append(words)
        real(*words)

    real = report.write
    monkeypatch.setattr(report, "write", write)
    told = config(out=str(tmp_path), epochs=300)
    with listener(told, True, Stream(False)) as tell:
        for event in run(told):
            tell(event)
    assert 2 <= len(written) < 100
    assert "300 of 300" in (tmp_path / "curves.html").read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    """Where --out is a file, the error is one sentence."""
    (tmp_path / "file").write_text("")
    told = config(out=str(tmp_path / "file"))
    with pytest.raises(WriteError, match="cannot be written"), listener(told, True, Stream(False)) as tell:
        tell(next(iter(run(told))))


def test_a_run_outlasts_who_watches_it(tmp_path):
    """When nobody reads the output any more (head -2), the run goes on to its end, silently."""
    words = [sys.executable, "-m", "tests.trainer.progress.watched_run", str(tmp_path / "run")]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0
    process.stderr.close()
    assert read(str(tmp_path / "run" / "metrics.jsonl"))[-1]["event"] == "Ended"


def test_colours_forced_on_a_log_move_no_cursor(tmp_path, monkeypatch):
    """FORCE_COLOR, which build servers set, does not make a log a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = Stream(False)
    told = config(out=str(tmp_path))
    with listener(told, True, stream) as tell:
        for event in run(told):
            tell(event)
    assert "\x1b" not in stream.getvalue()


def test_foonet_prints_eight_and_eight(tmp_path):
    """A batch of 16 on two replicas is told as two lines, once."""
    told = FOONET
    stream = Stream(False)
    folder = os.getcwd()
    os.chdir(tmp_path)
    try:
        with listener(told, True, stream) as tell:
            for event in run(told):
                tell(event)
    finally:
        os.chdir(folder)
    text = stream.getvalue()
    assert text.count("\nreplica 0 on cpu: batch of 8\nreplica 1 on cpu: batch of 8\n") == 1
    assert text.count("batch of") == 2
