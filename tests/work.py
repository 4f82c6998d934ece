"""How much work something is, said so that neither a slow nor a busy machine changes the answer."""

from __future__ import annotations

import cProfile
import gc
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

# growth is asked until its larger runs took so long together, at most so many times
ENOUGH_SECONDS, MOST_RUNS = 0.2, 20


def counted(function: Callable[..., T], *arguments: Any) -> tuple[T, int]:
    """What a function returns, and how many calls of Python functions and of built-in ones it takes.

    They are counted in C: a function of Python's that is told of each call takes seconds for a few million, and ten
    times as long where its frame happens to be the first of a new piece of the interpreter's stack.
    """
    before = sys.getprofile()
    profile = cProfile.Profile()
    try:
        result = profile.runcall(function, *arguments)
    finally:
        sys.setprofile(before)
    return result, sum(each.callcount for each in profile.getstats())


def growth(function: Callable[[int], object], few: int, many: int, runs: int = 3) -> float:
    """How many times the work of ``many`` is that of ``few``: processor time of the fastest of some runs each.

    What takes milliseconds is run more often: a busy neighbour can slow all of three such runs.
    ``function`` prepares nothing: what it needs is made beforehand. Where work grows with the number the answer is
    about ``many / few``, where it grows with the square about the square of that.
    """
    seconds: dict[int, list[float]] = {few: [], many: []}
    gc.disable()  # how long it takes depends on what other tests have left
    try:
        while len(seconds[few]) < runs or (len(seconds[few]) < MOST_RUNS and sum(seconds[many]) < ENOUGH_SECONDS):
            for number, taken in seconds.items():
                started = time.process_time()
                function(number)
                taken.append(time.process_time() - started)
    finally:
        gc.enable()
    return min(seconds[many]) / max(min(seconds[few]), 1e-4)
