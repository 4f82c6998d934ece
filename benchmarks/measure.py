"""Whole processes, timed by the operating system: seconds of wall clock and peak memory, side by side in one run."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# what the system counts ru_maxrss in: bytes on macOS, KiB elsewhere (getrusage(2))
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class Measured:
    """Medians over the rounds: seconds of wall clock and CPU seconds of all threads; and the largest peak of memory."""

    seconds: float
    peak_mb: float
    cpu: float


def once(command: Sequence[str]) -> Measured:
    """Run one process to its end. Raises CalledProcessError when it fails (status 1 is a finding, not a failure)."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 1):
        raise subprocess.CalledProcessError(code, list(command))
    return Measured(seconds, usage.ru_maxrss * MAXRSS_UNIT / 1e6, usage.ru_utime + usage.ru_stime)


def side_by_side(
    commands: dict[str, Sequence[str]], rounds: int = 5, before: Callable[[], None] | None = None
) -> dict[str, Measured]:
    """Run all commands in turn, one warm-up and ``rounds`` counted rounds, so that drift hits all alike."""
    runs: dict[str, list[Measured]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            if before is not None:
                before()
            measured = once(command)
            if turn:
                runs[name].append(measured)
    return {
        name: Measured(
            statistics.median(run.seconds for run in each),
            max(run.peak_mb for run in each),
            statistics.median(run.cpu for run in each),
        )
        for name, each in runs.items()
    }


def show(title: str, measured: dict[str, Measured]) -> None:
    """Print each command's figures, and how many times as long as the first one it takes, by the clock and in CPU."""
    first = next(iter(measured.values()))
    print(f"\n{title}")
    for name, each in measured.items():
        ratio, cpu = each.seconds / first.seconds, each.cpu / first.cpu
        figures = f"{each.seconds:8.3f} s  {each.cpu:8.3f} s CPU  {each.peak_mb:6.0f} MB"
        print(f"  {name:<58} {figures}  ×{ratio:.2f}  ×{cpu:.2f} CPU")
    sys.stdout.flush()


def python(code: str, *arguments: str) -> list[str]:
    """The command line of a fresh Python process that runs ``code``."""
    return [sys.executable, "-c", code, *arguments]


def ckptdoctor(*arguments: str) -> list[str]:
    """The command line of ckptdoctor in this environment."""
    return [sys.executable, "-m", "ckptdoctor", *arguments]
