"""The meter of an epoch, and the learning rate."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.loop import PAUSE, Meter, learning_rate
from ckptdoctor.trainer.strategies.strategy import StepTally
from ckptdoctor.trainer.team import Team


class Clock:
    """A clock that is put forward by hand."""

    now = 100.0

    def __call__(self):
        return self.now


def tally(loss, correct, images):
    """What a step counts."""
    return StepTally(torch.tensor(loss, dtype=torch.float64), torch.tensor(correct), images)


def test_it_gives_means_over_images():
    """Loss and accuracy are means over all images of all steps; the speed is images by seconds."""
    clock = Clock()
    meter = Meter(clock)
    meter.add(tally(12.0, 3, 4))
    meter.add(tally(3.0, 2, 2))
    clock.now += 2
    assert meter.here() == pytest.approx((2.5, 5 / 6, 3.0))
    assert meter.everywhere(Team(torch.device("cpu"))) == pytest.approx((2.5, 5 / 6, 6))
    assert meter.seconds() == 2


def test_nothing_counted_is_nothing():
    """Without a step all is 0, and nothing is divided by it."""
    meter = Meter(Clock())
    assert meter.here() == (0, 0, 0)
    assert meter.everywhere(Team(torch.device("cpu"))) == (0, 0, 0)


def test_a_look_is_due_once_in_a_while():
    """Two looks are at least a pause apart."""
    clock = Clock()
    meter = Meter(clock)
    assert not meter.due()
    clock.now += 2 * PAUSE
    assert meter.due()
    assert not meter.due()


@pytest.mark.parametrize("epochs", [1, 2, 10])
def test_it_is_that_of_torch(epochs):
    """Every epoch has the learning rate that CosineAnnealingLR gives it."""
    config = RunConfig(lr=0.3, epochs=epochs)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(epochs):
        assert learning_rate(config, epoch) == pytest.approx(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()


def test_a_constant_schedule_keeps_the_learning_rate():
    """Every epoch has the one that was asked for."""
    config = RunConfig(lr=0.3, epochs=10, schedule="constant")
    assert {learning_rate(config, epoch) for epoch in range(10)} == {0.3}
