"""Tests that ask thousands of cases: whole where that was asked for, otherwise as many as fit into some seconds."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Where the random choices begin, and how long each test may ask (None: until it has asked everything)."""

    seed: int
    seconds: float | None

    @property
    def whole(self) -> bool:
        """Whether everything is asked."""
        return self.seconds is None

    def cases(self, number: int, at_least: int = 1) -> Iterator[tuple[int, random.Random]]:
        """The numbers of the cases to try, each with its own chances; ``at_least`` so many on the slowest machine."""
        end = None if self.seconds is None else time.monotonic() + self.seconds
        for case in range(number):
            if case >= at_least and end is not None and time.monotonic() > end:
                return
            yield case, random.Random(f"{self.seed}.{case}")
