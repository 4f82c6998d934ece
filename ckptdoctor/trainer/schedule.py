"""The learning rate of each epoch."""

from __future__ import annotations

from math import cos, pi

from ckptdoctor.trainer.config import Config


def learning_rate(config: Config, epoch: int) -> float:
    """Half a cosine from ``config.lr`` down towards 0, as ``CosineAnnealingLR`` goes; ``epoch`` counts from 0.

    A function of the epoch and nothing else: a run that goes on needs to remember no more than where it was.
    """
    return config.lr * (1 + cos(pi * epoch / config.epochs)) / 2
