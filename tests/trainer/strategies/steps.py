"""Steps of a strategy on given batches, in this process."""

from __future__ import annotations

import torch

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.networks import build
from ckptdoctor.trainer.strategies.make import make
from ckptdoctor.trainer.team import Team

SHAPES = {"foonet": (3,), "lenet": (1, 28, 28), "vgg": (1, 28, 28), "resnet": (1, 28, 28)}
WIDTH = 4
CLASSES = {"foonet": 3}


def strategy(**choices):
    """A strategy in a world of one process, with its network, a narrow one."""
    config = RunConfig(**{"batch_size": 16, "width": WIDTH, **choices})
    model = build(config, SHAPES[config.network], CLASSES.get(config.network, 10))
    return make(config, Team(torch.device("cpu")), model)


def batch(config, number=0):
    """The same random inputs and labels every time."""
    generator = torch.Generator().manual_seed(number)
    shape, classes = SHAPES[config.network], CLASSES.get(config.network, 10)
    inputs = torch.randn((config.batch_size, *shape), generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (config.batch_size,), generator=generator)
    return inputs.to(getattr(torch, config.dtype)), labels


def after(steps=1, **choices):
    """The weights after some steps."""
    trained = strategy(**choices)
    for number in range(steps):
        trained.begin(0, number)
        trained.step(*batch(trained.config, number))
    return trained.state_dict()


def furthest(one, other):
    """The largest difference between two state dicts with the same keys."""
    assert list(one) == list(other)
    return max((one[key] - other[key]).abs().max().item() for key in one)
