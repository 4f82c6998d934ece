"""The built-in launcher: starts the ranks of a run on this machine, watches them, and ends them together.

What torchrun does for one machine and what the trainer needs beyond it: the end of a run is one sentence that names the
rank that caused it; Ctrl-C lets the ranks finish their step and save; and nothing is ever left running.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from tempfile import TemporaryDirectory

from ckptdoctor.errors import CkptDoctorError, TrainingError, UsageError, WriteError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.launch.contact import says_lost_contact
from ckptdoctor.trainer.launch.positions import PositionBoard, RankPosition
from ckptdoctor.trainer.launch.reports import GOES_ON, RankReport, Status, patience, ranks, seconds, signal_name
from ckptdoctor.trainer.launch.stopping import SIGNALS, StopRequest
from ckptdoctor.trainer.launch.variables import Environ
from ckptdoctor.wording import listed

_POLL = 0.05
"""Seconds between two looks at the processes."""

_GRACE = 3.0
"""Seconds in which the others notice that a rank is gone and end by themselves."""


def launch(config: RunConfig, *, target: str = "ckptdoctor.trainer.run:work", environ: Environ | None = None) -> int:
    """Call ``target(config, team, stop)`` in ``config.world_size`` processes on this machine; 0 when all end well.

    Raises the sentence of the rank that failed, as the error it was there, or TrainingError for one that was killed or
    fell silent; and KeyboardInterrupt when Ctrl-C is pressed a second time.
    """
    if not hasattr(os, "killpg"):
        raise UsageError(
            "the built-in launcher needs process groups, which this system does not have: use one process."
        )
    sys.stdout.flush()  # rank 0 writes to the same place
    with _private_folder(config) as folder, StopRequest().installed() as stop:
        start = Start(config, target, folder, os.environ if environ is None else environ)
        with RankProcesses(start) as all_ranks:
            error = _Watch(all_ranks, stop).until_the_end()
    if error is not None:
        raise error
    return 0


@contextmanager
def _private_folder(config: RunConfig) -> Iterator[Path]:
    """Make a folder that only this user can enter, for what the launcher and its ranks share besides the store."""
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="ckptdoctor-")))
            (folder / "config.json").write_text(config.to_json(), encoding="utf-8")
            PositionBoard.create(folder / "positions", config.world_size)
        except OSError as error:
            raise WriteError(
                f"cannot create a temporary folder: {error.strerror}; set TMPDIR to another one."
            ) from error
        yield folder


class _Watch:
    """Looks at the ranks until none is left, or until those that are left have had their time."""

    def __init__(self, all_ranks: RankProcesses, stop: StopRequest) -> None:
        self.ranks = all_ranks
        self.config = all_ranks.start.config
        self.stop = stop
        self.endings: list[Ending] = []
        self.stop_by: float | None = None
        """When the ranks have to have ended, once they were asked to stop."""
        self.end_by: float | None = None
        """When the ranks have to have ended, once one of them has failed."""

    def until_the_end(self) -> CkptDoctorError | None:
        """Watch until all have ended; returns the error of the run, or None."""
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

    def _look(self, running: list[RankProcess]) -> list[RankProcess]:
        """Take note of those that have ended; returns the others."""
        ended = [rank for rank in running if not rank.is_running()]
        self.endings += by_weight([ending(rank, self.ranks.board.read(rank.number)) for rank in ended])
        if self.end_by is None and any(each.code != Status.OK for each in self.endings):
            self.end_by = time.monotonic() + _GRACE
        return [rank for rank in running if rank not in ended]

    def _pass_on(self, running: list[RankProcess]) -> None:
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


@dataclass(frozen=True)
class Ending:
    """The way in which one rank ended."""

    rank: int
    pid: int
    code: int
    """The exit status, or the negative number of a signal, as subprocess has it."""
    position: RankPosition
    report: RankReport | None
    log: str
    """The path of the log."""
    lost_contact: bool
    """Whether it ended because another rank was gone."""

    @property
    def is_cause(self) -> bool:
        """Whether it can have brought the others down."""
        return self.code != Status.OK and not self.lost_contact


def ending(rank: RankProcess, position: RankPosition) -> Ending:
    """Return the ending of a process that is over."""
    code = rank.process.returncode
    # NCCL finds out in a thread of its own, which aborts the process: by the signal alone that looks like a crash
    aborted = code == -signal.SIGABRT and says_lost_contact(rank.log())
    report = RankReport.read(rank.start.report(rank.number))
    lost = aborted or code == Status.LOST_CONTACT
    return Ending(rank.number, rank.process.pid, code, position, report, str(rank.start.log(rank.number)), lost)


@dataclass(frozen=True)
class Silent:
    """A rank that is there, and that the others waited for in vain."""

    rank: int
    pid: int
    position: RankPosition


def by_weight(endings: Sequence[Ending]) -> list[Ending]:
    """Return endings that were seen at the same moment, the likeliest cause first.

    A signal comes first, then a known error, then any other.
    """
    return sorted(endings, key=lambda each: (each.code >= 0, each.code != Status.REFUSED, each.rank))


def verdict(endings: Sequence[Ending], silent: Sequence[Silent], config: RunConfig) -> CkptDoctorError | None:
    """Return the error of a run.

    ``endings`` are in the order in which they happened, ``silent`` is what never ended by itself.

    None when every rank ended well.
    """
    for each in endings:
        if each.is_cause:
            return _of_cause(each)
    lost = [each for each in endings if each.lost_contact]
    if not lost:
        return None
    if silent:
        return TrainingError(_of_silence(silent, config))
    return TrainingError(f"the ranks lost contact with each other {lost[0].position}; {GOES_ON}")


def _of_cause(each: Ending) -> CkptDoctorError:
    if each.code < 0:
        return TrainingError(f"{_who(each)} was killed by {signal_name(-each.code)} {each.position}; {GOES_ON}")
    if each.code == Status.REFUSED and each.report is not None:
        return each.report.error()
    if each.report is not None:
        sentence = each.report.sentence.rstrip(".")
        return TrainingError(f"rank {each.rank} failed: {sentence}; the traceback is in {each.log}.")
    return TrainingError(f"{_who(each)} ended with status {each.code} {each.position}; its output is in {each.log}.")


def _of_silence(silent: Sequence[Silent], config: RunConfig) -> str:
    numbers = [each.rank for each in silent]
    pids = [each.pid for each in silent]
    one = len(silent) == 1
    who = f"{ranks(numbers)} ({'process' if one else 'processes'} {listed(pids)}) {'has' if one else 'have'}"
    position = silent[0].position
    return f"{who} not answered for {seconds(patience(config, position))} {position}; {GOES_ON}"


def _who(each: Ending) -> str:
    return f"rank {each.rank} (process {each.pid})"


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
        """Return the log of a rank."""
        return Path(self.config.out) / "logs" / f"rank-{rank}.log"

    def report(self, rank: int) -> Path:
        """Return the file in which a rank says what went wrong."""
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
        """Return whether the process has not ended; asks the system, and clears up after it when it has."""
        if self.process.returncode is None and self.process.poll() is not None:
            # the workers of its data loader, say; now, because later the number of the group may be somebody else's
            self.signal_group(signal.SIGKILL)
        return self.process.returncode is None

    def log(self) -> str:
        """Return the log of a rank."""
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
        """Return those that have not ended."""
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
    """Return the environment of a rank: that of the launcher, and what ``variables`` and ``worker`` read."""
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
