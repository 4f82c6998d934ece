"""The record of a run."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptdoctor.errors import DamagedError, UnreadableError, WriteError
from ckptdoctor.trainer.events import Ended
from ckptdoctor.trainer.progress.metrics import MetricsLog, figure, read
from tests.trainer.progress.runs import config, epoch_done, run, started


def write(path, events, resumed_epoch=0):
    """Tell a log these events."""
    with MetricsLog(str(path), resumed_epoch) as log:
        for event in events:
            log(event)
    return log


def kinds(records):
    """What the records are, epochs with their number."""
    return [record["epoch"] if record["event"] == "EpochDone" else record["event"] for record in records]


def test_every_event_but_the_steps_is_a_line(tmp_path):
    """The lines are what was told, with all fields, in order, and the log remembers them as they can be read."""
    path = tmp_path / "metrics.jsonl"
    log = write(path, run(config(ema=True)))
    records = read(str(path))
    assert kinds(records) == ["Started", 1, "Saved", 2, "Saved", 3, "Saved", 4, "Saved", "Ended"]
    assert records == log.records
    assert records[0]["config"]["strategy"] == "ddp"
    assert records[0]["devices"] == ["cuda:0", "cuda:1"]
    assert {key: records[1][key] for key in ("train_loss", "test_loss")} == {"train_loss": 1.5, "test_loss": 1.6}
    assert records[2]["files"] == ["model.pt", "training.pt", "truth.json"]


def test_time_is_utc_in_iso_8601(tmp_path):
    """Every line says when it was written, with its offset from UTC, which is none."""
    write(tmp_path / "log", run(config()))
    for record in read(str(tmp_path / "log")):
        assert datetime.fromisoformat(record["time"]).utcoffset() == timedelta(0)


def test_lines_are_there_at_once(tmp_path):
    """What was told can be read while the log is open: a run that is killed loses nothing."""
    with MetricsLog(str(tmp_path / "log")) as log:
        log(started(config()))
        assert kinds(read(str(tmp_path / "log"))) == ["Started"]


def test_what_is_no_number_becomes_null(tmp_path):
    """NaN and infinities would make a line that no JSON parser has to accept."""
    write(tmp_path / "log", [epoch_done(config(), 1, train_loss=float("nan"), test_loss=float("inf"))])

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    record = json.loads((tmp_path / "log").read_text(), parse_constant=refuse)
    assert (record["train_loss"], record["test_loss"]) == (None, None)


def test_a_path_of_any_bytes_comes_back(tmp_path):
    """A file name that is not valid text is written and read without loss."""
    write(tmp_path / "log", [started(config(out="\udcffé\n"))])
    assert read(str(tmp_path / "log"))[0]["config"]["out"] == "\udcffé\n"
    assert (tmp_path / "log").read_bytes().isascii()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of the record of a whole run."""
    path = tmp_path_factory.mktemp("whole") / "log"
    write(path, run(config(ema=True)))
    return path.read_bytes()


@settings(deadline=None)
@given(data=st.data())
def test_a_run_may_be_killed_at_any_byte(whole, data):
    """Cut anywhere, the file can be read, nothing is lost but the half line, and a run that goes on repairs it."""
    cut = data.draw(st.integers(0, len(whole)))
    complete = [json.loads(line) for line in whole.splitlines()]
    expected = complete[: len((whole[:cut] + b"}").split(b"}\n")) - 1] if cut else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        path.write_bytes(whole[:cut])
        found = read(str(path))
        assert found == complete[: len(found)]
        assert len(expected) <= len(found) <= len(expected) + 1
        assert len(found) >= whole[:cut].count(b"\n")
        write(path, [Ended(4, 0.5)], resumed_epoch=4)
        assert read(str(path))[:-1] == found
        assert path.read_bytes().endswith(b"}\n")
        assert os.listdir(folder) == ["log"]


@pytest.mark.parametrize("stop", range(1, 5))
def test_no_epoch_is_there_twice(tmp_path, stop):
    """A run that continues after an epoch drops later ones, with their checkpoints; when runs began and ended stays."""
    path = tmp_path / "log"
    write(path, run(config(), last=4))
    write(path, run(config(), first=stop + 1), resumed_epoch=stop)
    records = read(str(path))
    epochs = [kind for kind in kinds(records) if isinstance(kind, int)]
    assert epochs == [1, 2, 3, 4]
    assert sum(record["event"] == "Saved" for record in records) == 4
    assert [kind for kind in kinds(records) if kind in ("Started", "Ended")] == ["Started", "Ended"] * 2


def test_a_new_run_drops_the_epochs_of_the_old_one(tmp_path):
    """Going on after epoch 0, nothing of another run's epochs stays."""
    write(tmp_path / "log", run(config()))
    log = write(tmp_path / "log", [])
    assert kinds(log.records) == ["Started", "Ended"]
    assert kinds(read(str(tmp_path / "log"))) == ["Started", "Ended"]


def test_a_good_file_is_not_touched(tmp_path):
    """Where nothing is to be dropped or repaired, the file stays the same file."""
    write(tmp_path / "log", run(config()))
    inode = (tmp_path / "log").stat().st_ino
    write(tmp_path / "log", [], resumed_epoch=4)
    assert (tmp_path / "log").stat().st_ino == inode


def test_a_repair_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    """The file is replaced in one step or not at all, and nothing else is left behind."""
    path = tmp_path / "log"
    write(path, run(config()))
    before = path.read_bytes()

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(WriteError, match="No space left on device"):
        MetricsLog(str(path), 2)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["log"]


@pytest.mark.parametrize(
    "line", ["nonsense", "[1]", "{}", '{"event": 3}', '{"event": "EpochDone"}', '{"event": "EpochDone", "epoch": "x"}']
)
def test_other_damage_is_named(tmp_path, line):
    """A line in the middle that is no record is not passed over: the error says which one, and what to do."""
    path = tmp_path / "log"
    path.write_text('{"event": "Started"}\n' + line + '\n{"event": "Ended"}\n')
    with pytest.raises(DamagedError, match=r"Line 2 of .*log is not a record of a run; move that file away"):
        read(str(path))


def test_a_missing_file_is_unreadable(tmp_path):
    """Reading what is not there is an error with a sentence."""
    with pytest.raises(UnreadableError, match="cannot be read: No such file"):
        read(str(tmp_path / "none"))


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    """Where the file cannot be made, the error says so."""
    with pytest.raises(WriteError, match="cannot be written: No such file"):
        MetricsLog(str(tmp_path / "none" / "log"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_a_full_disk_is_named(tmp_path):
    """A line that finds no room ends with a sentence, and closing the log afterwards is no second error."""
    with MetricsLog(str(tmp_path / "log")) as log:
        log._file.close()
        log._file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115 - the log closes it
        with pytest.raises(WriteError, match=r"log cannot be written: No space left on device\. Free some space"):
            log(started(config()))


def test_a_figure_that_is_none_is_none():
    """Missing figures, null, text and absurd ones are told apart from numbers."""
    record = {"a": 1, "b": None, "c": "1", "d": 1e200, "e": -0.5}
    assert [figure(record, key) for key in "abcdef"] == [1.0, None, None, None, -0.5, None]
