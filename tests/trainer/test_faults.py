"""Runs that are killed: what they say, what they leave behind, and how they go on."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time

import pytest

from tests.trainer.runs import complete, finished, is_running, ranks_of, same, saved, started, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

DDP = {"strategy": "ddp", "world_size": 2, "width": 4, "images": 600, "batch_size": 20, "epochs": 3, "timeout": 10.0}


def test_a_killed_rank_ends_the_run_with_its_name(tmp_path):
    """kill -9 of a rank: one sentence names it, no rank is left, and the run goes on with --resume to the same end."""
    out = str(tmp_path / "out")
    process = started(**DDP, out=out)
    wait_for(lambda: complete(out))
    ranks = ranks_of(process)
    os.kill(ranks[1], signal.SIGKILL)
    _, complaint = process.communicate(timeout=30)
    assert process.returncode != 0
    sentence = rf"rank 1 \(process {ranks[1]}\) was killed by signal 9 \(SIGKILL\) in epoch \d, step \d+; "
    assert re.search(sentence, complaint)
    assert not any(map(is_running, ranks))
    finished(**DDP, out=out, resume=True)
    assert saved(complete(out)[-1])["epoch"] == 3


def test_a_killed_launcher_leaves_no_orphan(tmp_path):
    """kill -9 of the launcher: its ranks end by themselves, and the run goes on with --resume."""
    out = str(tmp_path / "out")
    process = started(**DDP, out=out)
    wait_for(lambda: complete(out))
    ranks = ranks_of(process)
    assert len(ranks) == 2
    process.kill()
    process.communicate(timeout=30)
    wait_for(lambda: not any(map(is_running, ranks)), seconds=5)
    finished(**DDP, out=out, resume=True)
    assert saved(complete(out)[-1])["epoch"] == 3


def test_a_run_that_is_killed_again_and_again_arrives_at_the_same_bits(tmp_path):
    """Killed at any moment, in the middle of a save too, a run goes on from its last complete checkpoint."""
    choices = {"network": "resnet", "width": 2, "images": 60, "batch_size": 6, "epochs": 4, "ema": True}
    finished(**choices, out=str(tmp_path / "whole"))
    out, chance = str(tmp_path / "out"), random.Random(0)
    kills = 0
    while kills < 4:
        process = started(**choices, out=out, resume=bool(complete(out)))
        before = len(complete(out))
        wait_for(lambda: len(complete(out)) > before or process.poll() is not None)  # noqa: B023
        time.sleep(chance.uniform(0, 0.15))
        process.kill()
        process.communicate(timeout=30)
        kills += 1
        if len(complete(out)) == 4:
            break
    assert kills > 1
    finished(**choices, out=out, resume=True)
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.endswith(".partial")]
    assert same(saved(tmp_path / "whole/epoch-0004"), saved(tmp_path / "out/epoch-0004"))


@pytest.mark.slow
def test_exact_stopped_on_two_ranks_and_resumed_on_four_is_exact(tmp_path):
    """Uninterrupted on one rank, or stopped by Ctrl-C on two and resumed on four: the same weights and momentum."""
    choices = {"strategy": "exact", "network": "vgg", "width": 4, "images": 480, "batch_size": 16, "epochs": 2}
    finished(**choices, out=str(tmp_path / "one"))
    out = str(tmp_path / "several")
    process = started(**choices, world_size=2, out=out)
    wait_for(lambda: complete(out))
    process.send_signal(signal.SIGINT)
    said, complaint = process.communicate(timeout=60)
    assert process.returncode == 0, complaint
    assert "epoch-0001-step-" in said
    finished(**choices, world_size=4, out=out, resume=True)
    one, other = saved(tmp_path / "one/epoch-0002"), saved(tmp_path / "several/epoch-0002")
    assert same(one["state_dict"], other["state_dict"])
    assert same(one["optimizer"], other["optimizer"])
    assert not same(one["state_dict"], saved(tmp_path / "one/epoch-0001")["state_dict"])
