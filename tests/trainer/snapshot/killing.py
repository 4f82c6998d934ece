"""A run that test_killing.py kills while it saves.

A child is forked for each kill. ``boundaries``: the n-th child kills itself, with SIGKILL, at the
n-th call that changes something on the disk. ``moments``: children save one checkpoint after the other until they are
killed from outside at some moment.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import torch

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.snapshot import folders, save
from ckptdoctor.trainer.snapshot.folders import Position
from ckptdoctor.trainer.snapshot.resume import read
from tests.trainer.snapshot.toy import ALONE, Toy

CALLS = (
    (os, "fsync"),
    (os, "replace"),
    (Path, "mkdir"),  # Python 3.10 takes os.mkdir when it starts
    (os, "rmdir"),
    (os, "unlink"),
    (torch, "save"),
    (Path, "write_text"),
)

# so many checkpoints show that a run which is killed again and again moves forward
ENOUGH_EPOCHS = 3


def dies_at(number: int) -> None:
    """From here on, the process kills itself before its ``number``-th change on the disk."""
    left = [number]

    def counted(genuine):
        def call(*arguments, **options):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return genuine(*arguments, **options)

        return call

    for owner, name in CALLS:
        setattr(owner, name, counted(getattr(owner, name)))
    folders.exchange = counted(folders.exchange)


def forked(work) -> int:
    """The process id of a child that does the work and ends."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def waited(child: int) -> int:
    """What a child ended with: 0, 1 for an error, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def state_of(out: Path) -> dict:
    """What somebody finds who resumes: every complete folder must be readable, to the byte."""
    found = folders.complete_folders(out)
    epochs = [read(folder)["epoch"] for folder in found]
    before = sorted(path.name for path in out.iterdir())
    folders.sweep(out)
    newest = folders.newest(out)
    return {
        "epochs": epochs,
        "newest": newest.name if newest else None,
        "best": read(newest)["best_accuracy"] if newest else None,
        "before": before,
        "swept": sorted(path.name for path in out.iterdir()),
    }


def boundaries(out: Path, again: bool) -> list[dict]:
    """Killed at each change in turn, while saving epoch 2 beside epoch 1; ``again``: epoch 1 in place of epoch 1."""
    strategy, config = prepared(out)
    target = Position(1 if again else 2, best_accuracy=0.75)
    ends = []
    for number in range(200):
        for folder in folders.complete_folders(out):
            if again or folder.name != "epoch-0001":
                shutil.rmtree(folder)
        if folders.newest(out) is None:
            save.save(config, strategy, ALONE, Position(1, best_accuracy=0.5))

        def work(number=number):
            dies_at(number)
            save.save(config, strategy, ALONE, target)

        status = waited(forked(work))
        ends.append({"status": status, **state_of(out)})
        if status == 0:
            break
    return ends


def moments(out: Path, times: int) -> list[dict]:
    """Killed from outside after a random time, again and again, each child going on where the last one was killed.

    A machine that became slower than it was measured gets more time, and more kills until there was something to see.
    """
    strategy, config = prepared(out)
    elsewhere = replace(config, out=f"{out}-elsewhere")
    save.save(elsewhere, strategy, ALONE, Position(1))  # the first save of a process imports more
    began = time.monotonic()
    save.save(elsewhere, strategy, ALONE, Position(2))
    usual = time.monotonic() - began
    choose = random.Random(5)
    ends = []

    def work():
        newest = folders.newest(out)
        epoch = read(newest)["epoch"] if newest else 0
        while True:
            epoch += 1
            save.save(config, strategy, ALONE, Position(epoch, best_accuracy=epoch / 1000))

    epochs = 0
    while len(ends) < times or (epochs <= ENOUGH_EPOCHS and len(ends) < 10 * times):
        child = forked(work)
        time.sleep(choose.uniform(0.2, 4) * usual)
        os.kill(child, signal.SIGKILL)
        ends.append({"status": waited(child), **state_of(out)})
        before, epochs = epochs, len(ends[-1]["epochs"])
        if epochs == before:
            usual *= 1.2
    return ends


def prepared(out: Path):
    """A strategy and a configuration that saves a few files; one thread, as forked children need."""
    torch.set_num_threads(1)
    out.mkdir()
    config = RunConfig(out=str(out), save=("plain", "legacy"))
    return Toy(config), config


def main(place: Path, how: str) -> None:
    """Print what was found after each kill."""
    result = moments(place, 15) if how == "moments" else boundaries(place, again=how == "again")
    print(json.dumps(result))
