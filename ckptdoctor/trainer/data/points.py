"""Points in space, for the smallest network: which of three coordinates is the largest?"""

from __future__ import annotations

import torch

from ckptdoctor.trainer.data.dataset import Dataset, Split
from ckptdoctor.trainer.data.seeding import generator

TRAIN, TEST = 1024, 256


def points() -> Dataset:
    """1,024 points to learn from and 256 to test with: three classes, one for each coordinate."""
    return Dataset("points", draw("train", TRAIN), draw("test", TEST), ("x", "y", "z"), (0.0,), (1.0,))


def draw(name: str, count: int) -> Split:
    """Points of a normal distribution, each labelled with the index of its largest coordinate."""
    inputs = torch.randn(count, 3, generator=generator("points", name))
    return Split(inputs, inputs.argmax(dim=1))
