"""The built-in launcher: starts the ranks of a run on this machine, watches them, and ends them together.

What torchrun does for one machine and what the trainer needs beyond it: the end of a run is one sentence that names the
rank that caused it; Ctrl-C lets the ranks finish their step and save; and nothing is ever left running.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ckptdoctor.errors import CkptDoctorError, TrainingError, UsageError, WriteError
from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.launch.positions import PositionBoard
from ckptdoctor.trainer.launch.ranks import Rank, Ranks, Start
from ckptdoctor.trainer.launch.reports import Status
from ckptdoctor.trainer.launch.sentences import GOES_ON, ranks, seconds
from ckptdoctor.trainer.launch.stopping import StopRequest
from ckptdoctor.trainer.launch.variables import Environ
from ckptdoctor.trainer.launch.verdict import Ending, Silent, by_weight, ending, verdict

_POLL = 0.05
"""Seconds between two looks at the processes."""

_GRACE = 3.0
"""Seconds in which the others notice that a rank is gone and end by themselves."""


def launch(config: Config, *, target: str = "ckptdoctor.trainer.run:work", environ: Environ | None = None) -> int:
    """Call ``target(config, team, stop)`` in ``config.world_size`` processes on this machine; 0 when all end well.

    Raises the sentence of the rank that failed, as the error it was there, or TrainingError for one that was killed or
    fell silent; and KeyboardInterrupt when Ctrl-C is pressed a second time.
    """
    if not hasattr(os, "killpg"):
        raise UsageError("the built-in launcher needs process groups, which this system has not: take one process.")
    sys.stdout.flush()  # rank 0 writes to the same place
    with _private_folder(config) as folder, StopRequest().installed() as stop:
        start = Start(config, target, folder, os.environ if environ is None else environ)
        with Ranks(start) as all_ranks:
            error = _Watch(all_ranks, stop).until_the_end()
    if error is not None:
        raise error
    return 0


@contextmanager
def _private_folder(config: Config) -> Iterator[Path]:
    """A folder that only this user can enter, with what the launcher and its ranks share beside the store."""
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="ckptdoctor-")))
            (folder / "config.json").write_text(config.to_json(), encoding="utf-8")
            PositionBoard.create(folder / "positions", config.world_size)
        except OSError as error:
            raise WriteError(
                f"no temporary folder can be made: {error.strerror}; set TMPDIR to another one."
            ) from error
        yield folder


class _Watch:
    """Looks at the ranks until none is left, or until those that are left have had their time."""

    def __init__(self, all_ranks: Ranks, stop: StopRequest) -> None:
        self.ranks = all_ranks
        self.config = all_ranks.start.config
        self.stop = stop
        self.endings: list[Ending] = []
        self.stop_by: float | None = None
        """When the ranks have to have ended, once they were asked to stop."""
        self.end_by: float | None = None
        """When the ranks have to have ended, once one of them has failed."""

    def until_the_end(self) -> CkptDoctorError | None:
        """What went wrong, or None."""
        running = list(self.ranks.all)
        while running and not self._time_is_up():
            time.sleep(_POLL)
            running = self._look(running)
            if self.stop.asked and self.stop_by is None:
                self._pass_on(running)
        silent = [Silent(each.number, each.process.pid, self.ranks.board.read(each.number)) for each in running]
        self.ranks.end()
        return verdict(self.endings, silent, self.config) or self._too_slow(silent)

    def _time_is_up(self) -> bool:
        deadline = self.end_by or self.stop_by
        return deadline is not None and time.monotonic() > deadline

    def _look(self, running: list[Rank]) -> list[Rank]:
        """Take note of those that have ended; returns the others."""
        ended = [rank for rank in running if not rank.is_running()]
        self.endings += by_weight([ending(rank, self.ranks.board.read(rank.number)) for rank in ended])
        if self.end_by is None and any(each.code != Status.OK for each in self.endings):
            self.end_by = time.monotonic() + _GRACE
        return [rank for rank in running if rank not in ended]

    def _pass_on(self, running: list[Rank]) -> None:
        """Ask the ranks to stop, as they expect it; to each once, and to them alone, not to what they started."""
        for rank in running:
            rank.process.send_signal(signal.SIGINT)
        # a rank that hangs is named by those that wait for it, so they get the time to
        self.stop_by = time.monotonic() + self.config.timeout + _GRACE

    def _too_slow(self, silent: list[Silent]) -> TrainingError | None:
        """Only a stop brings a run to its end while ranks are running and none has failed."""
        if not silent:
            return None
        numbers = [each.rank for each in silent]
        return TrainingError(
            f"{ranks(numbers)} did not end within {seconds(self.config.timeout)} of the request to stop; {GOES_ON}"
        )
