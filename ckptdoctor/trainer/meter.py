"""Adds up what steps count, and says how fast they go."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from ckptdoctor.trainer.strategies.strategy import Tally
from ckptdoctor.trainer.team import Team

PAUSE = 0.1
"""Seconds between two looks at the numbers: reading them makes the CPU wait for a GPU."""


class Meter:
    """Loss, accuracy and speed of one epoch. Sums stay on their device until somebody asks."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = self._looked = clock()
        self._sums: torch.Tensor | None = None
        self._images = 0

    def add(self, tally: Tally) -> None:
        """Count a step."""
        sums = torch.stack([tally.loss, tally.correct.to(tally.loss.dtype)])
        self._sums = sums if self._sums is None else self._sums + sums
        self._images += tally.images

    def due(self) -> bool:
        """Whether it is time for another look; true once in a while."""
        now = self._clock()
        if now - self._looked < PAUSE:
            return False
        self._looked = now
        return True

    def here(self) -> tuple[float, float, float]:
        """Mean loss, accuracy, and images per second so far, of this rank alone."""
        loss, correct = (0.0, 0.0) if self._sums is None else self._sums.tolist()
        images = max(self._images, 1)
        return loss / images, correct / images, self._images / max(self._clock() - self._began, 1e-9)

    def everywhere(self, team: Team) -> tuple[float, float, int]:
        """Mean loss, accuracy and number of images over all ranks; every rank has to ask."""
        own = [0.0, 0.0] if self._sums is None else self._sums.tolist()
        loss, correct, images = team.sum(torch.tensor([*own, self._images], dtype=torch.float64)).tolist()
        return loss / max(images, 1), correct / max(images, 1), int(images)

    def seconds(self) -> float:
        """Since the meter was made. Let the device finish first."""
        return self._clock() - self._began
