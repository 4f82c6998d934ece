"""The words that sentences about the end of a run are put together from."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.launch.positions import Position
from ckptdoctor.wording import listed

GOES_ON = "the run ended, and goes on from the last complete checkpoint with --resume."

JOINING = 60.0
"""Seconds that ranks wait for each other at the start at least, however short the timeout: a cold disk is slow."""


def patience(config: Config, position: Position) -> float:
    """How many seconds the others waited for a rank that is there, before they gave it up."""
    return config.timeout if position.epoch else max(config.timeout, JOINING)


def seconds(number: float) -> str:
    """As "10 s"."""
    return f"{number:g} s"


def signal_name(number: int) -> str:
    """As "signal 9 (SIGKILL)"."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:  # the real-time signals between the first and the last have no names
        return f"signal {number}"


def ranks(numbers: Sequence[int]) -> str:
    """As "rank 1", or "ranks 1, 2 and 3"."""
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {listed(numbers)}"


def first_line(error: BaseException, limit: int = 300) -> str:
    """What went wrong in one line, with the name of its class: "RuntimeError: …"."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"
