"""Who is to blame."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ckptdoctor.errors import TrainingError, WriteError
from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.launch.positions import Position
from ckptdoctor.trainer.launch.reports import Report, Status
from ckptdoctor.trainer.launch.verdict import Ending, Silent, by_weight, ending, verdict
from tests.trainer.launch.helpers import GOES_ON

CONFIG = Config(timeout=10.0)
LATER = Position(2, 31)


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
    endings = [an_ending(2, -11, Position()), an_ending(1, -9)]
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
    report = Report("WriteError", "run/epoch-0001 cannot be written: the disk is full.")
    error = verdict([an_ending(1, Status.REFUSED, report=report)], [], CONFIG)
    assert type(error) is WriteError and error.message == report.sentence


def test_silent_ranks():
    """Ranks that the others gave up are named with the seconds they were waited for."""
    lost = [an_ending(0, Status.LOST_CONTACT)]
    assert verdict(lost, [Silent(1, 4711, Position(2, 31))], CONFIG).message == (
        f"rank 1 (process 4711) has not answered for 10 s in epoch 2, step 31{GOES_ON}"
    )
    assert verdict(lost, [Silent(1, 11, Position()), Silent(2, 12, Position())], CONFIG).message == (
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
    found = ending(rank, Position())
    assert (found.code, found.lost_contact, found.is_cause) == (-signal.SIGABRT, lost, not lost)


def test_reports_survive_a_bad_file(tmp_path):
    """A report that was not written, or not to its end, is none; a class that is unknown is a TrainingError."""
    path = tmp_path / "rank-1.json"
    assert Report.read(path) is None
    path.write_text('{"kind": "Wri')
    assert Report.read(path) is None
    Report.of(RuntimeError("\n  first\nsecond")).write(path)
    assert Report.read(path) == Report("RuntimeError", "RuntimeError: first")
    assert type(Report("Nothing", "x").error()) is TrainingError
    assert type(Report("annotations", "x").error()) is TrainingError
