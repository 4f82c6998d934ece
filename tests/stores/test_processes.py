"""Processes that are killed, stopped or interrupted: nothing that was examined is lost, and nobody is waited for."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from ckptdoctor.errors import WriteError
from ckptdoctor.stores import schema
from ckptdoctor.stores.audit import AuditRequest, audit
from ckptdoctor.stores.engines.local import LocalEngine
from ckptdoctor.stores.listing import Walk
from ckptdoctor.stores.order import Waiting
from tests.runs.generated import saved, weights, write
from tests.stores.asked import audited, checkpoints, rows, table
from tests.stores.simulated import installed

MANY = 500

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are found in /proc")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store that takes seconds: names of a few files."""
    folder = tmp_path_factory.mktemp("store") / "runs"
    contents = [saved({"model": weights(seed), "iter_num": seed}) for seed in range(3)]
    for at in range(MANY):
        path = folder / f"run{at % 10}" / f"step_{at}.pt"
        if at < 30:
            write(path, contents[at % 3])
        else:
            os.link(folder / f"run{at % 30 % 10}" / f"step_{at % 30}.pt", path)
    return folder


@pytest.fixture(scope="module")
def right(store, tmp_path_factory):
    """The table when nothing is in its way."""
    path = tmp_path_factory.mktemp("right") / "right.db"
    audited(store, output=path)
    return table(path)


def begun(store, output, *options):
    """The command in a process of its own, of which some checkpoints are in the database already."""
    line = [sys.executable, "-m", "ckptdoctor", "audit", str(store), "-o", str(output), "--jobs", "2", *options]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: output.exists() and rows_in(output) > 0)
    assert process.poll() is None, "it was over before it could be disturbed"
    return process


def rows_in(output):
    """How many checkpoints others can read of it."""
    try:
        return rows(output, "SELECT count(*) AS number FROM checkpoint")[0]["number"]
    except Exception:  # its tables are being made
        return 0


def wait_for(what, seconds=60):
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def children(process):
    """The processes that a process has started."""
    with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
        return [int(each) for each in file.read().split()]


def is_there(process):
    """Whether a process still runs."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_kill_of_the_driver_loses_one_batch_at_most(store, right, tmp_path):
    """What was written is there, its workers end by themselves, and the same command examines the rest alone."""
    process = begun(store, tmp_path / "a.db")
    workers = children(process.pid)
    process.kill()
    process.communicate()
    wait_for(lambda: not any(map(is_there, workers)))
    known = rows_in(tmp_path / "a.db")
    assert 0 < known < MANY
    again = audited(store, output=tmp_path / "a.db")
    assert (again.examined, again.unchanged) == (MANY - known, known)
    assert table(tmp_path / "a.db") == right
    states = [each["state"] for each in rows(tmp_path / "a.db", "SELECT state FROM audit ORDER BY started")]
    assert states == ["running", "complete"]


def test_kill_of_a_worker_loses_nothing(store, right, tmp_path):
    """Another takes its place, and the table is the same."""
    process = begun(store, tmp_path / "a.db")
    for worker in children(process.pid):
        os.kill(worker, signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert table(tmp_path / "a.db") == right


@pytest.mark.slow
def test_ctrl_c_leaves_a_database_and_says_how_to_go_on(store, right, tmp_path):
    """The status is 130, and what is printed to type goes on where it ended."""
    process = begun(store, tmp_path / "a.db")
    os.kill(process.pid, signal.SIGINT)
    output, complaint = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"a.db: " in output and b"Traceback" not in complaint
    last = complaint.decode().splitlines()[-1]
    known = rows_in(tmp_path / "a.db")
    assert last.startswith(f"Interrupted: {known:,} of {MANY:,} checkpoints examined")
    assert last.endswith(f"To go on: ckptdoctor audit {store} -o {tmp_path / 'a.db'}")
    (row,) = rows(tmp_path / "a.db", "SELECT * FROM audit")
    assert (row["state"], row["examined"]) == ("interrupted", known)
    audited(store, output=tmp_path / "a.db")
    assert table(tmp_path / "a.db") == right


@pytest.mark.slow
def test_ctrl_c_while_it_lists_keeps_what_was_examined(tmp_path, monkeypatch):
    """Nobody knows how many there are, which is said; what is not listed yet is not taken for gone."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("SIMULATED_STORE", "")
    installed(tmp_path / "known")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.environ["PYTHONPATH"], str(tmp_path / "known")]))
    monkeypatch.setenv("SIMULATED_LATENCY", "0.3")
    process = begun("simulated://5-45-20", tmp_path / "a.db")
    os.kill(process.pid, signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130 and b"Traceback" not in complaint
    known = rows_in(tmp_path / "a.db")
    last = complaint.decode().splitlines()[-1]
    assert re.match(rf"Interrupted: {known} checkpoints? examined before all were listed, and kept in ", last)
    (row,) = rows(tmp_path / "a.db", "SELECT * FROM audit")
    assert (row["state"], row["examined"], row["removed"]) == ("interrupted", known, 0)
    monkeypatch.delenv("SIMULATED_LATENCY")
    again = audited("simulated://5-45-20", output=tmp_path / "a.db")
    assert (again.listed, again.unchanged, again.removed) == (900, known, 0)
    audited("simulated://5-45-20", output=tmp_path / "b.db")
    assert table(tmp_path / "a.db") == table(tmp_path / "b.db")


def test_a_second_audit_into_one_database_is_told_to_wait(tmp_path, monkeypatch):
    """Where another process writes into it all the time; one that came a moment earlier has only made the tables."""
    monkeypatch.setattr(schema, "_PATIENCE", 0.1)
    write(tmp_path / "x" / "step_1.pt", saved(weights()))
    audited(tmp_path / "x", output=tmp_path / "a.db")
    before = table(tmp_path / "a.db")
    with closing(sqlite3.connect(tmp_path / "a.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            WriteError, match=r"a\.db is being written by another process\. Wait until that is done, or "
        ):
            audited(tmp_path / "x", output=tmp_path / "a.db")
    assert audited(tmp_path / "x", output=tmp_path / "a.db").unchanged == 1 and table(tmp_path / "a.db") == before
    with closing(schema.create(str(tmp_path / "a.db"))) as again:
        schema._create_tables(again)
        assert again.execute("SELECT count(*) FROM checkpoint").fetchone() == (1,)


def test_a_full_disk_is_told_and_what_was_committed_stays(tmp_path, monkeypatch):
    """SQLite's words, and no traceback; with room again, the same command goes on."""
    write(tmp_path / "x" / "step_1.pt", saved(weights()))
    audited(tmp_path / "x", output=tmp_path / "a.db")
    before = table(tmp_path / "a.db")
    write(tmp_path / "x" / "step_2.pt", saved(weights(2)))

    def full(self, rows):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched, pytest.raises(WriteError, match=r"database or disk is full\. What was comm"):
        patched.setattr("ckptdoctor.stores.writer.Writer.write", full)
        audited(tmp_path / "x", output=tmp_path / "a.db")
    assert table(tmp_path / "a.db") == before
    assert audited(tmp_path / "x", output=tmp_path / "a.db").examined == 1


def test_a_worker_that_says_nothing_is_replaced(tmp_path):
    """One that a file blocks is killed when its time is over; what it had is examined by another."""
    for at in range(12):
        write(tmp_path / "x" / f"step_{at}.pt", saved(weights(at)))
    engine = LocalEngine(1)
    stopped = []
    completed = engine.completed

    def stopping(seconds):
        if not stopped:
            stopped.extend(children(os.getpid())[-1:])
            os.kill(stopped[0], signal.SIGSTOP)
            for worker in engine._pool:
                worker.heard -= 1_000_000  # so much time has gone by
        return completed(seconds)

    engine.completed = stopping
    found = audit(AuditRequest((str(tmp_path / "x"),), str(tmp_path / "a.db")), engine)
    assert found.examined == 12 and not is_there(stopped[0])
    assert {each["health"] for each in checkpoints(tmp_path / "a.db").values()} == {"clean"}


def test_batches_become_smaller_towards_the_end(tmp_path):
    """All units, in order, in batches of 64 as long as many are left; the last ones are of a few."""
    for at in range(1_000):
        write(tmp_path / "x" / f"step_{at:04}.pt", b"x")
    units = list(Walk(str(tmp_path / "x")).units())
    with closing(Waiting(str(tmp_path))) as waiting:
        for each in units:
            waiting.add(each)
        batches = [batch.units for batch in iter(lambda: waiting.batch(3), None)]
    assert [each for batch in batches for each in batch] == [each.plain for each in units]
    sizes = [len(each) for each in batches]
    assert sizes[:3] == [64, 64, 64] and sizes == sorted(sizes, reverse=True) and sizes[-1] == 1 and len(sizes) < 80
