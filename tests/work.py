"""How much work something is, said so that neither a slow nor a busy machine changes the answer."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def counted(function: Callable[..., T], *arguments: Any) -> tuple[T, int]:
    """What a function returns, and how many calls of Python functions and of built-in ones it takes."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = function(*arguments)
    finally:
        sys.setprofile(before)
    return result, calls


def growth(function: Callable[[int], object], few: int, many: int, runs: int = 3) -> float:
    """How many times the work of ``many`` is that of ``few``: processor time of the fastest of some runs each.

    ``function`` prepares nothing: what it needs is made beforehand. Where work grows with the number the answer is
    about ``many / few``, where it grows with the square about the square of that.
    """
    seconds: dict[int, list[float]] = {few: [], many: []}
    gc.collect()
    gc.disable()  # how long it takes depends on what other tests have left
    try:
        for _ in range(runs):
            for number, taken in seconds.items():
                started = time.process_time()
                function(number)
                taken.append(time.process_time() - started)
    finally:
        gc.enable()
    return min(seconds[many]) / max(min(seconds[few]), 1e-4)
