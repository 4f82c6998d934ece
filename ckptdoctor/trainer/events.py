"""A run tells these events to whoever listens: the terminal, the metrics file, the curves. Plain numbers only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

from ckptdoctor.trainer.config import RunConfig


@dataclass(frozen=True)
class Started:
    """A run begins, or goes on after ``epoch`` complete epochs."""

    config: RunConfig
    parameters: int
    train_images: int
    test_images: int
    steps: int
    """Steps of one epoch."""
    epoch: int
    devices: tuple[str, ...]
    """The device of each replica, such as ("cuda:0", "cuda:1")."""


@dataclass(frozen=True)
class StepDone:
    """One optimizer step. ``epoch`` counts from 1, ``step`` from 1 within the epoch."""

    epoch: int
    step: int
    loss: float
    accuracy: float
    images_per_second: float
    replica_batches: tuple[int, ...]
    """How many images each replica saw in this step."""
    work: tuple[str, ...] = ()
    """The lines of --show-work: of the first step, where they were asked for."""


@dataclass(frozen=True)
class EpochDone:
    """One epoch, with the test that follows it. Accuracies are fractions, losses means over images."""

    epoch: int
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    ema_accuracy: float | None
    learning_rate: float
    seconds: float
    """Of training alone, on a clock that is read after the devices have finished."""
    images_per_second: float


@dataclass(frozen=True)
class Saved:
    """A checkpoint folder is complete and has its name."""

    path: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Ended:
    """The run is over: all epochs are done, or ``interrupted`` says what stopped it."""

    epochs: int
    test_accuracy: float | None
    interrupted: str | None = None


RunEvent = Union[Started, StepDone, EpochDone, Saved, Ended]
EventListener = Callable[[RunEvent], None]
