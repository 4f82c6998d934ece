"""The processes of a run, as the launcher holds them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path

from ckptdoctor.errors import TrainingError, WriteError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.launch.positions import PositionBoard
from ckptdoctor.trainer.launch.stopping import SIGNALS

_PATIENCE = 1.0
"""Seconds between the request to end and the end."""


@dataclass(frozen=True)
class Start:
    """The settings with which all ranks of a run are started."""

    config: RunConfig
    target: str
    folder: Path
    environ: Mapping[str, str]

    def log(self, rank: int) -> Path:
        """The log of a rank."""
        return Path(self.config.out) / "logs" / f"rank-{rank}.log"

    def report(self, rank: int) -> Path:
        """The file in which a rank says what went wrong."""
        return self.folder / f"rank-{rank}.json"


class RankProcess:
    """One process. It leads a process group of its own, so that all it starts can be ended with it."""

    def __init__(self, number: int, start: Start, lifeline: int) -> None:
        self.number = number
        self.start = start
        with _open_log(start.log(number)) as log:
            self.log_begins = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ckptdoctor.trainer.launch.worker"],
                env=_variables(number, start, lifeline),
                stdin=subprocess.DEVNULL,
                stdout=None if number == 0 else log,
                stderr=log,
                pass_fds=(lifeline,),
                start_new_session=True,  # Ctrl-C in the terminal reaches the launcher only, which passes it on
            )

    def is_running(self) -> bool:
        """Whether the process has not ended; asks the system, and clears up after it when it has."""
        if self.process.returncode is None and self.process.poll() is not None:
            # the workers of its data loader, say; now, because later the number of the group may be somebody else's
            self.signal_group(signal.SIGKILL)
        return self.process.returncode is None

    def log(self) -> str:
        """The log of a rank."""
        with self.start.log(self.number).open("rb") as log:
            log.seek(self.log_begins)
            return log.read().decode("utf-8", "replace")

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process and to all it started that has not left its group."""
        with contextlib.suppress(ProcessLookupError):  # all have ended
            os.killpg(self.process.pid, number)


class RankProcesses:
    """All processes of a run. Leaving the context ends every one of them that is still there."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.all: list[RankProcess] = []
        self.board = PositionBoard(start.folder / "positions")
        # each rank has a pipe of its own: the signal a pipe sends when it closes has one receiver, see worker.py
        self._pipes: list[int] = []

    def __enter__(self) -> RankProcesses:
        # no stop signal may reach a child before it listens: it inherits that they are blocked, and unblocks them
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            for number in range(self.start.config.world_size):
                self._begin(number)
        except BaseException:
            self.__exit__()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.running():
            rank.signal_group(signal.SIGKILL)
            rank.process.wait()
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes.clear()
        self.board.close()

    def running(self) -> list[RankProcess]:
        """Those that have not ended."""
        return [rank for rank in self.all if rank.is_running()]

    def end(self) -> None:
        """Ask those that are left to end, and a moment later end them."""
        for rank in self.running():
            rank.signal_group(signal.SIGTERM)
        deadline = time.monotonic() + _PATIENCE
        while self.running() and time.monotonic() < deadline:
            time.sleep(0.05)
        for rank in self.running():
            rank.signal_group(signal.SIGKILL)

    def _begin(self, number: int) -> None:
        try:
            theirs, ours = os.pipe()
            self._pipes.append(ours)
            try:
                self.all.append(RankProcess(number, self.start, theirs))
            finally:
                os.close(theirs)
        except OSError as error:
            raise TrainingError(f"rank {number} cannot be started: {error.strerror}; try fewer processes.") from error


def _variables(rank: int, start: Start, lifeline: int) -> dict[str, str]:
    """The environment of a rank: that of the launcher, and what ``variables`` and ``worker`` read."""
    return {
        **start.environ,
        "CKPTDOCTOR_RENDEZVOUS": (start.folder / "rendezvous").as_uri(),
        "CKPTDOCTOR_RANK": str(rank),
        "CKPTDOCTOR_WORLD_SIZE": str(start.config.world_size),
        "CKPTDOCTOR_FOLDER": str(start.folder),
        "CKPTDOCTOR_LIFELINE": str(lifeline),
        "CKPTDOCTOR_TARGET": start.target,
        # a rank imports what the launcher would import, and nothing that happens to lie in the working directory
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "PYTHONSAFEPATH": "1",
    }


def _open_log(path: Path) -> BufferedWriter:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError as error:
        raise WriteError(f"the log {path} cannot be written: {error.strerror}; name another --out.") from error
