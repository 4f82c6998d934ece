"""The training loop: the same for every strategy, to be read from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import cos, pi

import torch
from torch.nn.functional import cross_entropy

from ckptdoctor.trainer import devices
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.data.batches import Batches, Sampler, test_batches
from ckptdoctor.trainer.data.dataset import Dataset
from ckptdoctor.trainer.events import Ended, EpochDone, EventListener, Saved, Started, StepDone
from ckptdoctor.trainer.launch.positions import report_position
from ckptdoctor.trainer.launch.stopping import StopRequest
from ckptdoctor.trainer.snapshot.folders import Position
from ckptdoctor.trainer.snapshot.save import save
from ckptdoctor.trainer.strategies.strategy import StepTally, Strategy, precise
from ckptdoctor.trainer.team import Team


@dataclass(frozen=True)
class Run:
    """All that takes part in a run, on one rank."""

    config: RunConfig
    team: Team
    dataset: Dataset
    strategy: Strategy
    tell: EventListener
    stop: StopRequest

    @property
    def steps(self) -> int:
        """Steps of one epoch."""
        return self.sampler.steps

    @cached_property
    def sampler(self) -> Sampler:
        """The sampler, which decides which images are in which batch."""
        return Sampler(len(self.dataset.train.labels), self.config.batch_size, self.config.seed)

    @cached_property
    def batches(self) -> Batches:
        """This rank's share of them."""
        rank, world_size = self.team.rank, self.team.world_size
        return Batches(self.dataset.train, self.dataset, self.sampler, self.config, rank, world_size)


def train(run: Run, position: Position) -> Position:
    """Train from ``position`` to the last epoch, testing and saving on the way; returns where it ended.

    When the run is asked to stop it finishes the step, saves, and returns early.
    """
    config = run.config
    _announce(run, position)
    accuracy = None
    while position.epoch < config.epochs:
        run.strategy.set_learning_rate(learning_rate(config, position.epoch))
        meter = Meter()
        position = train_epoch(run, position, meter)
        if position.step:  # stopped on the way
            _save(run, position)
            run.tell(Ended(position.epoch, accuracy, run.stop.reason or "another rank was asked to stop"))
            return position
        accuracy = _tested(run, position.epoch, meter)
        position = replace(position, best_accuracy=max(position.best_accuracy, accuracy))
        if position.epoch % config.every == 0 or position.epoch == config.epochs:
            _save(run, position)
    run.tell(Ended(position.epoch, accuracy))
    return position


def train_epoch(run: Run, position: Position, meter: Meter) -> Position:
    """Run one epoch, or what is left of it; stop after a step when any rank was asked to.

    Returns the position reached.
    """
    run.strategy.begin(position.epoch, position.step)
    step = position.step
    for inputs, labels in run.batches.epoch(position.epoch, position.step):
        report_position(position.epoch + 1, step + 1)
        # all ranks have to stop after the same step, so they ask each other
        anybody_stops = run.team.asking(lambda: run.stop.asked)
        tally = run.strategy.step(inputs, labels)
        devices.finish_step(run.team.device)
        meter.add(tally)
        step += 1
        _tell_step(run, position.epoch + 1, step, step == run.steps, tally, meter)
        if anybody_stops() and step < run.steps:
            return replace(position, step=step)
    devices.synchronize(run.team.device)
    return replace(position, epoch=position.epoch + 1, step=0)


def test(run: Run, ema: bool = False) -> tuple[float, float]:
    """Return loss and accuracy on the test images, each of which exactly one rank looks at."""
    meter = Meter()
    batches = test_batches(
        run.dataset.test,
        run.dataset,
        rank=run.team.rank,
        world_size=run.team.world_size,
        batch_size=max(run.config.batch_size, 256),
        dtype=getattr(torch, run.config.dtype),
    )
    for inputs, labels in batches:
        logits = run.strategy.predict(inputs, ema).float()
        labels = labels.to(logits.device)
        loss = precise(cross_entropy(logits, labels, reduction="sum"))
        meter.add(StepTally(loss, (logits.argmax(1) == labels).sum(), len(labels)))
    return meter.everywhere(run.team)[:2]


def _announce(run: Run, position: Position) -> None:
    here = tuple(str(device) for device in run.strategy.devices)
    run.tell(
        Started(
            config=run.config,
            parameters=run.strategy.parameter_count,
            train_images=len(run.dataset.train.labels),
            test_images=len(run.dataset.test.labels),
            steps=run.steps,
            epoch=position.epoch,
            devices=here if run.team.world_size == 1 else _of_ranks(run.team),
        )
    )


def _of_ranks(team: Team) -> tuple[str, ...]:
    indexed = team.device.index is not None
    return tuple(f"{team.device.type}:{rank}" if indexed else team.device.type for rank in range(team.world_size))


def _tell_step(run: Run, epoch: int, step: int, last: bool, tally: StepTally, meter: Meter) -> None:
    """Tell only now and then: the first step, the last one, and as often as a person can see in between."""
    if run.team.is_first and (step == 1 or last or tally.work or meter.due()):
        loss, accuracy, speed = meter.here()
        batches = tally.replica_batches * run.team.world_size  # every rank has an equal share
        run.tell(StepDone(epoch, step, loss, accuracy, speed * run.team.world_size, batches, tally.work))


def _tested(run: Run, epoch: int, meter: Meter) -> float:
    """Test after an epoch, and tell of both."""
    seconds = meter.seconds()
    train_loss, train_accuracy, images = meter.everywhere(run.team)
    test_loss, test_accuracy = test(run)
    run.tell(
        EpochDone(
            epoch=epoch,
            train_loss=train_loss,
            train_accuracy=train_accuracy,
            test_loss=test_loss,
            test_accuracy=test_accuracy,
            ema_accuracy=test(run, ema=True)[1] if run.strategy.ema is not None else None,
            learning_rate=learning_rate(run.config, epoch - 1),
            seconds=seconds,
            images_per_second=images / seconds,
        )
    )
    return test_accuracy


def _save(run: Run, position: Position) -> None:
    path = save(run.config, run.strategy, run.team, position)
    run.tell(Saved(str(path), tuple(sorted(each.name for each in path.iterdir()))))


PAUSE = 0.1
"""Seconds between two looks at the numbers: reading them makes the CPU wait for a GPU."""


class Meter:
    """Loss, accuracy and speed of one epoch. Sums stay on their device until somebody asks."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = self._looked = clock()
        self._sums: torch.Tensor | None = None
        self._images = 0

    def add(self, tally: StepTally) -> None:
        """Count a step."""
        sums = torch.stack([tally.loss, tally.correct.to(tally.loss.dtype)])
        self._sums = sums if self._sums is None else self._sums + sums
        self._images += tally.images

    def due(self) -> bool:
        """Return whether it is time for another look; true once in a while."""
        now = self._clock()
        if now - self._looked < PAUSE:
            return False
        self._looked = now
        return True

    def here(self) -> tuple[float, float, float]:
        """Return mean loss, accuracy, and images per second so far, of this rank alone."""
        loss, correct = (0.0, 0.0) if self._sums is None else self._sums.tolist()
        images = max(self._images, 1)
        return loss / images, correct / images, self._images / max(self._clock() - self._began, 1e-9)

    def everywhere(self, team: Team) -> tuple[float, float, int]:
        """Return mean loss, accuracy and number of images over all ranks; every rank has to ask."""
        own = [0.0, 0.0] if self._sums is None else self._sums.tolist()
        loss, correct, images = team.sum(torch.tensor([*own, self._images], dtype=torch.float64)).tolist()
        return loss / max(images, 1), correct / max(images, 1), int(images)

    def seconds(self) -> float:
        """Return the seconds since the meter was made. Let the device finish first."""
        return self._clock() - self._began


def learning_rate(config: RunConfig, epoch: int) -> float:
    """Return the learning rate of an epoch; ``epoch`` counts from 0.

    ``cosine`` is half a cosine from ``config.lr`` down towards 0, as ``CosineAnnealingLR`` goes. It is a function of
    the epoch and nothing else: a run that goes on needs to remember no more than where it was.
    """
    if config.schedule == "constant":
        return config.lr
    return config.lr * (1 + cos(pi * epoch / config.epochs)) / 2
