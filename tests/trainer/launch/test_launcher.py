"""The built-in launcher, with real processes: how runs end, in good order and in every bad one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ckptdoctor.errors import TrainingError, UnreadableError, WriteError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.launch.launcher import Ending, Silent, by_weight, ending, verdict
from ckptdoctor.trainer.launch.positions import RankPosition
from ckptdoctor.trainer.launch.reports import RankReport, Status
from tests.trainer.forks import begin_importing
from tests.trainer.launch.helpers import (
    GOES_ON,
    a_config,
    alive,
    ended,
    fork,
    pids,
    run,
    run_forked,
    start,
    suspended,
    until,
    wait_for,
)


@pytest.fixture(autouse=True)
def folders(tmp_path_factory, monkeypatch):
    """Where private folders are made; every one of them has to be gone after a test."""
    begin_importing()
    folder = tmp_path_factory.mktemp("a b#c")  # no good in a URL as it is
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    assert list(folder.iterdir()) == []
    assert not (folder.parent / "a b").exists()
    tempfile.tempdir = None


def test_ranks_reduce_over_both_groups(tmp_path):
    """Two ranks get the sums of both groups, share the cores, and only rank 0 speaks on stdout."""
    process = fork("total", a_config(tmp_path))
    assert process.communicate(timeout=30) == ("rank 0 says hello\n", "")
    assert process.returncode == 0
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    for rank in (0, 1):
        assert (tmp_path / f"total-{rank}").read_text() == f"3 3 [0, 1] {rank} {threads} cpu"
    assert (tmp_path / "logs" / "rank-1.log").read_text() == "rank 1 says hello\n"
    assert (tmp_path / "logs" / "rank-0.log").read_text() == ""


def test_a_killed_rank_is_named(tmp_path):
    """kill -9 of a rank ends the run, before any timeout, with one sentence, and with what the ranks had started."""
    with pytest.raises(TrainingError) as caught:
        run_forked("killed", a_config(tmp_path, timeout=600.0))
    pid = pids(tmp_path)[1]
    assert caught.value.message == (
        f"rank 1 (process {pid}) was killed by signal 9 (SIGKILL) in epoch 2, step 7{GOES_ON}"
    )
    everyone = pids(tmp_path) + pids(tmp_path, "child")
    until(lambda: not any(map(alive, everyone)), 20)


def test_a_rank_with_a_bug_is_named(tmp_path):
    """An exception that nobody foresaw is told in its first line, and its traceback is in the log."""
    with pytest.raises(TrainingError) as caught:
        run_forked("fails", a_config(tmp_path))
    log = tmp_path / "logs" / "rank-1.log"
    assert caught.value.message == f"rank 1 failed: RuntimeError: the roof is on fire; the traceback is in {log}."
    assert 'raise RuntimeError("the roof is on fire' in log.read_text()


def test_an_error_for_users_is_passed_on(tmp_path):
    """An error that a rank raises for the user comes out of the launcher as it is, class and sentence."""
    with pytest.raises(UnreadableError) as caught:
        run_forked("refuses", a_config(tmp_path))
    assert caught.value.message == "images/0001 cannot be read: it is a folder."


def test_a_rank_that_exits_is_named(tmp_path):
    """A process that just ends, with a status that it had no time to explain, is named with it."""
    with pytest.raises(TrainingError) as caught:
        run_forked("exits", a_config(tmp_path))
    assert caught.value.message == (
        f"rank 1 (process {pids(tmp_path)[1]}) ended with status 9 in epoch 2, step 7; its output is in "
        f"{tmp_path / 'logs' / 'rank-1.log'}."
    )


@pytest.mark.parametrize("trouble", ["suspended", pytest.param("endless", marks=pytest.mark.slow)])
def test_a_hung_rank_is_named(tmp_path, trouble):
    """A rank that is there and does not answer is named, not the one that gave up waiting for it."""
    with pytest.raises(TrainingError) as caught:
        run_forked(trouble, a_config(tmp_path, timeout=1.5))
    pid = pids(tmp_path)[1]
    assert caught.value.message == f"rank 1 (process {pid}) has not answered for 1.5 s in epoch 2, step 7{GOES_ON}"
    assert not any(map(alive, pids(tmp_path)))


def test_nothing_outlives_the_launcher(tmp_path, folders):
    """kill -9 of the launcher leaves no process within two seconds: no rank, not even a stopped one, and no child."""
    process = start("with_children", a_config(tmp_path))
    try:
        wait_for(tmp_path / "begun")
        until(lambda: suspended(pids(tmp_path)[-1]), 60)
        everyone = pids(tmp_path) + pids(tmp_path, "child")
        assert len(everyone) == 4 and all(map(alive, everyone))
    finally:
        process.kill()
        process.communicate()
    until(lambda: not any(map(alive, everyone)), 20)
    assert list(folders.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_ends_a_run_in_good_order(tmp_path, number):
    """Ctrl-C or SIGTERM to the launcher: all ranks stop after the same step, and the launcher ends with 0."""
    process = fork("steps", a_config(tmp_path))
    wait_for(tmp_path / "begun")
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")
    stopped = [(tmp_path / f"stopped-{rank}").read_text().split(maxsplit=1) for rank in (0, 1)]
    assert stopped[0][0] == stopped[1][0]
    assert "Ctrl-C" in {stopped[0][1], stopped[1][1]}


def test_a_request_to_stop_is_not_lost_while_ranks_start(tmp_path):
    """Ctrl-C while a rank still imports torch stops it at its first step; it is started from nothing, as all are."""
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    # the time to stop includes the import, which takes a busy machine longer than a step
    assert run("steps", a_config(tmp_path, world_size=1, timeout=120.0)) == 0
    timer.join()
    assert (tmp_path / "stopped-0").read_text() == "1 Ctrl-C"


def test_a_second_request_ends_at_once(tmp_path):
    """The second Ctrl-C kills the ranks, without asking, and is a KeyboardInterrupt."""
    process = fork("deaf", a_config(tmp_path))
    wait_for(tmp_path / "begun")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert all(map(alive, pids(tmp_path)))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=3)
    assert process.returncode == 130
    assert not any(map(alive, pids(tmp_path)))


def test_ranks_that_do_not_stop_are_ended(tmp_path):
    """Ranks that do not follow a request to stop within the timeout are ended, and the sentence says so."""
    config = a_config(tmp_path, timeout=1.0)
    process = fork("deaf", config)
    wait_for(tmp_path / "begun")
    process.send_signal(signal.SIGINT)
    with pytest.raises(TrainingError) as caught:
        ended(process, config)
    assert caught.value.message == f"ranks 0 and 1 did not end within 1 s of the request to stop{GOES_ON}"
    assert not any(map(alive, pids(tmp_path)))


def test_an_output_folder_that_cannot_be_written(tmp_path):
    """Logs that have no place to go are refused before anything starts."""
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(WriteError) as caught:
        run("total", a_config(tmp_path))
    log = tmp_path / "logs" / "rank-0.log"
    assert caught.value.message == f"the log {log} cannot be written: File exists; name another --out."


def test_no_temporary_folder(tmp_path, monkeypatch):
    """A system without room for temporary files is told of."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(WriteError) as caught:
        run("total", a_config(tmp_path))
    assert caught.value.message == (
        "cannot create a temporary folder: No such file or directory; set TMPDIR to another one."
    )


def test_a_target_that_is_not_there(tmp_path):
    """A rank that cannot import what it is to do says so."""
    with pytest.raises(TrainingError, match=r"^rank \d failed: AttributeError: .* 'nothing'; the traceback is in"):
        run_forked("nothing", a_config(tmp_path))


def test_the_launcher_does_not_load_torch():
    """The process that only watches starts in an instant."""
    code = "import sys, ckptdoctor.trainer.launch.launcher; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3]).returncode == 0


CONFIG = RunConfig(timeout=10.0)
LATER = RankPosition(2, 31)


def an_ending(rank, code, position=LATER, report=None):
    return Ending(rank, 4700 + rank, code, position, report, f"out/logs/rank-{rank}.log", code == Status.LOST_CONTACT)


def test_all_is_well():
    """Nothing is wrong when all end well."""
    assert verdict([an_ending(0, 0), an_ending(1, 0)], [], CONFIG) is None


def test_those_that_noticed_first_are_not_to_blame():
    """A survivor that ended before the launcher saw who died is passed over."""
    endings = [an_ending(0, Status.LOST_CONTACT), an_ending(1, -9), an_ending(2, Status.LOST_CONTACT)]
    assert verdict(endings, [], CONFIG).message == (
        f"rank 1 (process 4701) was killed by signal 9 (SIGKILL) in epoch 2, step 31{GOES_ON}"
    )


def test_the_first_is_to_blame():
    """Of two that failed, the one that did so first is named."""
    endings = [an_ending(2, -11, RankPosition()), an_ending(1, -9)]
    assert verdict(endings, [], CONFIG).message == (
        f"rank 2 (process 4702) was killed by signal 11 (SIGSEGV) before its first step{GOES_ON}"
    )
    assert verdict([an_ending(2, -40)], [], CONFIG).message.startswith(
        "rank 2 (process 4702) was killed by signal 40 in"
    )


def test_of_those_seen_together():
    """A signal weighs more than an error with a sentence, and that more than any other."""
    endings = [an_ending(0, 1), an_ending(1, Status.LOST_CONTACT), an_ending(2, Status.REFUSED), an_ending(3, -9)]
    assert [each.rank for each in by_weight(endings)] == [3, 2, 0, 1]


def test_an_error_for_users_keeps_its_class():
    """A sentence that a rank has for the user goes up as it is."""
    report = RankReport("WriteError", "run/epoch-0001 cannot be written: the disk is full.")
    error = verdict([an_ending(1, Status.REFUSED, report=report)], [], CONFIG)
    assert type(error) is WriteError and error.message == report.sentence


def test_silent_ranks():
    """Ranks that the others gave up are named with the seconds they were waited for."""
    lost = [an_ending(0, Status.LOST_CONTACT)]
    assert verdict(lost, [Silent(1, 4711, RankPosition(2, 31))], CONFIG).message == (
        f"rank 1 (process 4711) has not answered for 10 s in epoch 2, step 31{GOES_ON}"
    )
    assert verdict(lost, [Silent(1, 11, RankPosition()), Silent(2, 12, RankPosition())], CONFIG).message == (
        f"ranks 1 and 2 (processes 11 and 12) have not answered for 60 s before its first step{GOES_ON}"
    )


def test_nobody_is_to_blame():
    """When all ranks lost each other, the connection is what failed."""
    endings = [an_ending(0, Status.LOST_CONTACT), an_ending(1, Status.LOST_CONTACT)]
    assert verdict(endings, [], CONFIG).message == (
        f"the ranks lost contact with each other in epoch 2, step 31{GOES_ON}"
    )


@pytest.mark.parametrize(
    ("said", "lost"), [("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(", True), ("", False)]
)
def test_an_abort_of_nccl_is_no_crash(tmp_path, said, lost):
    """A process that NCCL's watchdog aborted lost contact; one that aborted for another reason is the cause."""
    code = f"import os, sys; sys.stderr.write({said!r}); sys.stderr.flush(); os.abort()"
    process = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    start = SimpleNamespace(report=lambda rank: tmp_path / "none", log=lambda rank: tmp_path / "log")
    rank = SimpleNamespace(
        number=0,
        process=SimpleNamespace(returncode=process.returncode, pid=os.getpid()),
        start=start,
        log=lambda: process.stderr,
    )
    found = ending(rank, RankPosition())
    assert (found.code, found.lost_contact, found.is_cause) == (-signal.SIGABRT, lost, not lost)


def test_reports_survive_a_bad_file(tmp_path):
    """A report that was not written, or not to its end, is none; a class that is unknown is a TrainingError."""
    path = tmp_path / "rank-1.json"
    assert RankReport.read(path) is None
    path.write_text('{"kind": "Wri')
    assert RankReport.read(path) is None
    RankReport.of(RuntimeError("\n  first\nsecond")).write(path)
    assert RankReport.read(path) == RankReport("RuntimeError", "RuntimeError: first")
    assert type(RankReport("Nothing", "x").error()) is TrainingError
    assert type(RankReport("annotations", "x").error()) is TrainingError
