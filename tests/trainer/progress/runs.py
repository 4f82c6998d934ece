"""Runs made by hand from events, and what their watchers see of them."""

from __future__ import annotations

import io
import os
from pathlib import Path

from rich.console import Console

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.events import Ended, EpochDone, Saved, Started, StepDone
from tests.trainer.progress.emulator import Emulator

GOLDEN = Path(__file__).parent / "golden"
STEPS = 20
FOONET = RunConfig(network="foonet", strategy="dp", world_size=2, data="points", batch_size=16, epochs=1)


def golden(name, text):
    """Hold ``text`` against the file ``name``; with UPDATE_GOLDEN=1 write it instead."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")


def config(**changes):
    """DDP on two GPUs, four epochs."""
    usual = {"strategy": "ddp", "world_size": 2, "device": "cuda", "epochs": 4, "batch_size": 256}
    return RunConfig(**{**usual, **changes})


def started(config, epoch=0, devices=None):
    """The first event of a run with this configuration."""
    kind = config.device
    names = [kind if kind == "cpu" else f"{kind}:{index}" for index in range(config.world_size)]
    return Started(config, 431_080, 5_120, 1_024, STEPS, epoch, tuple(devices or names))


def step(config, epoch, number):
    """One step, with figures that can be recognised."""
    replicas = (config.batch_size // config.world_size,) * config.world_size
    return StepDone(epoch, number, 2 / epoch - number / 100, 1 - 0.8 / epoch + number / 1000, 3814.4, replicas)


def epoch_done(config, epoch, **changes):
    """One epoch; each is better than the one before."""
    accuracy = 1 - 0.7 / epoch
    ema = accuracy + 0.01 if config.ema else None
    values = (epoch, 1.5 / epoch, accuracy - 0.015, 1.6 / epoch, accuracy, ema, 0.05, 2.71, 3814.4)
    return EpochDone(**{**dict(zip(EpochDone.__dataclass_fields__, values, strict=True)), **changes})


def saved(epoch, out="run"):
    """The checkpoint after an epoch."""
    return Saved(f"{out}/epoch-{epoch:04}", ("model.pt", "training.pt", "truth.json"))


def run(config, first=1, last=None, interrupted=None):
    """All events of a run, or of its epochs from ``first`` to ``last``."""
    last = config.epochs if last is None else last
    yield started(config, first - 1)
    for epoch in range(first, last + 1):
        yield from (step(config, epoch, number) for number in range(1, STEPS + 1))
        yield epoch_done(config, epoch)
        yield saved(epoch, config.out)
    yield Ended(last, epoch_done(config, last).test_accuracy, interrupted)


class Clock:
    """Time that passes when it is told to."""

    now = 1000.0

    def __call__(self):
        return self.now


class Watched:
    """A terminal of a given size, the console that writes to it, and a clock."""

    def __init__(self, width, height, encoding="utf-8", **options):
        self.clock = Clock()
        self.file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n", write_through=True)
        environ = {"TERM": "xterm-256color", **options.pop("environ", {})}
        self.console = Console(
            file=self.file,
            width=width,
            height=height,
            get_time=self.clock,
            _environ=environ,
            **{"force_terminal": True, **options},
        )

    @property
    def written(self):
        """Every character that was sent to the terminal."""
        return self.file.buffer.getvalue().decode(self.file.encoding)

    @property
    def emulator(self):
        """The terminal as it looks now."""
        emulator = Emulator(self.console.width, self.console.height)
        emulator.feed(self.written)
        return emulator

    def tell(self, terminal, events, pause=0.05):
        """Send events, one every ``pause`` seconds."""
        for event in events:
            self.clock.now += pause
            terminal(event)
