"""The work of ranks in these tests; a script, too: torchrun and Slurm start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import distributed

from ckptdoctor.errors import CkptDoctorError, UnreadableError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.launch.positions import report_position
from ckptdoctor.trainer.launch.stopping import StopRequest
from ckptdoctor.trainer.launch.variables import place
from ckptdoctor.trainer.launch.world import join

ENOUGH = 4000
"""Steps that nobody waits for: a run that goes on this long has not been stopped."""


def total(config, team, stop):
    """Every rank gives its number plus one; what comes out of both groups is written down by each."""
    gradients = torch.tensor([team.rank + 1.0])
    distributed.all_reduce(gradients)
    control = team.sum(torch.tensor([team.rank + 1.0]))
    ranks = [int(each) for each in team.gather(torch.tensor([team.rank]))]
    print(f"rank {team.rank} says hello", flush=True)
    text = f"{gradients.item():g} {control.item():g} {ranks} {team.local_rank} {torch.get_num_threads()} {team.device}"
    Path(config.out, f"total-{team.rank}").write_text(text)


def steps(config, team, stop, trouble=None, where=1):
    """The shape of the training loop: steps that need every rank, until one is asked to stop."""
    Path(config.out, f"pid-{team.rank}").write_text(str(os.getpid()))
    for step in range(1, ENOUGH):
        report_position(2, step)
        if step == 7 and trouble is not None and team.rank == where:
            trouble()
        distributed.all_reduce(torch.ones(1000))
        if step == 5 and team.is_first:
            Path(config.out, "begun").touch()
        if team.any(stop.asked):
            Path(config.out, f"stopped-{team.rank}").write_text(f"{step} {stop.reason}")
            return
        time.sleep(0.01)


def killed(config, team, stop):
    """Killed by the system, as when memory runs out; every rank has a child, as one with a data loader."""
    child(config, team)
    steps(config, team, stop, lambda: os.kill(os.getpid(), signal.SIGKILL))


def first_killed(config, team, stop):
    """It is rank 0, which keeps the store."""
    steps(config, team, stop, lambda: os.kill(os.getpid(), signal.SIGKILL), where=0)


def suspended(config, team, stop):
    """Not one thread of it runs any more."""
    steps(config, team, stop, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def endless(config, team, stop):
    """It computes, and never comes to the next collective."""

    def loop():
        while True:
            pass

    steps(config, team, stop, loop)


def fails(config, team, stop):
    """A bug."""

    def fail():
        raise RuntimeError("the roof is on fire\nand this is the second line")

    steps(config, team, stop, fail)


def refuses(config, team, stop):
    """An error for the user."""

    def refuse():
        raise UnreadableError("images/0001 cannot be read: it is a folder.")

    steps(config, team, stop, refuse)


def exits(config, team, stop):
    """A library ends the process."""
    steps(config, team, stop, lambda: os._exit(9))


def child(config, team):
    """A process that would live on after its parent."""
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(config.out, f"child-{team.rank}").write_text(str(started.pid))


def with_children(config, team, stop):
    """A run that goes on, in which every rank has a child and the last rank is suspended."""
    child(config, team)
    steps(config, team, stop, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def deaf(config, team, stop):
    """Asked to stop, and does not."""
    Path(config.out, f"pid-{team.rank}").write_text(str(os.getpid()))
    team.barrier()
    Path(config.out, "begun").touch()
    time.sleep(600)


def main(path, target):
    """A rank that somebody else started; returns its exit status."""
    config = RunConfig.from_json(Path(path).read_text())
    try:
        with StopRequest().installed() as stop, join(place(os.environ), config) as team:
            globals()[target](config, team, stop)
    except CkptDoctorError as error:
        print(error.message, file=sys.stderr, flush=True)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
