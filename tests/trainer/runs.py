"""Whole runs in processes of their own, as tests stop, kill and resume them."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import torch

from ckptdoctor.trainer.config import PROCESSES, RunConfig
from ckptdoctor.trainer.run import start
from tests.trainer.forks import Forked, fork_ranks


def started(**choices):
    """A small run in a process of its own; ``choices`` are fields of Config."""
    return Forked(_run, choices)


def finished(**choices):
    """The same, when it has ended well."""
    process = started(**choices)
    said, complaint = process.communicate(timeout=120)
    assert process.returncode == 0, said + complaint
    return said


def carried_out(config):
    """A run to its end: in this process, or, where it takes several, in forked ones."""
    if config.strategy in PROCESSES:
        finished(**asdict(config))
    else:
        start(config)


def _run(choices):
    fork_ranks()
    start(RunConfig(**choices))


def wait_for(condition, seconds=60):
    """Until ``condition()`` is true; returns what it gave."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
    return found


def ranks_of(process):
    """The process numbers of the ranks that a launcher started, in their order."""
    return [int(child) for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def is_running(number):
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def complete(out):
    """The complete checkpoint folders of a run, oldest first."""
    return sorted(path for path in Path(out).glob("epoch-*") if not path.name.endswith(".partial"))


def saved(folder):
    """What training.pt of a checkpoint folder holds."""
    return torch.load(Path(folder) / "training.pt", weights_only=True)


def same(one, other):
    """Whether two checkpoints, or parts of them, hold the same bits."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
