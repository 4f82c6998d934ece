"""Who is to blame for the end of a run: the rank that broke it, not those that noticed."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from ckptdoctor.errors import CkptDoctorError, TrainingError
from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.launch.contact import says_lost_contact
from ckptdoctor.trainer.launch.positions import Position
from ckptdoctor.trainer.launch.ranks import Rank
from ckptdoctor.trainer.launch.reports import Report, Status
from ckptdoctor.trainer.launch.sentences import GOES_ON, patience, ranks, seconds, signal_name
from ckptdoctor.wording import listed


@dataclass(frozen=True)
class Ending:
    """How one rank ended."""

    rank: int
    pid: int
    code: int
    """The exit status, or the negative number of a signal, as subprocess has it."""
    position: Position
    report: Report | None
    log: str
    """The path of the log."""
    lost_contact: bool
    """Whether it ended because another rank was gone."""

    @property
    def is_cause(self) -> bool:
        """Whether it can have brought the others down."""
        return self.code != Status.OK and not self.lost_contact


def ending(rank: Rank, position: Position) -> Ending:
    """How a process that is over ended."""
    code = rank.process.returncode
    # NCCL finds out in a thread of its own, which aborts the process: by the signal alone that looks like a crash
    aborted = code == -signal.SIGABRT and says_lost_contact(rank.log())
    report = Report.read(rank.start.report(rank.number))
    lost = aborted or code == Status.LOST_CONTACT
    return Ending(rank.number, rank.process.pid, code, position, report, str(rank.start.log(rank.number)), lost)


@dataclass(frozen=True)
class Silent:
    """A rank that is there, and that the others waited for in vain."""

    rank: int
    pid: int
    position: Position


def by_weight(endings: Sequence[Ending]) -> list[Ending]:
    """Endings that were seen at the same moment, the likeliest cause first: a signal, a known error, any other."""
    return sorted(endings, key=lambda each: (each.code >= 0, each.code != Status.REFUSED, each.rank))


def verdict(endings: Sequence[Ending], silent: Sequence[Silent], config: Config) -> CkptDoctorError | None:
    """The error of a run: ``endings`` in the order in which they happened, ``silent`` what never ended by itself.

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
    return TrainingError(f"{_who(each)} ended with status {each.code} {each.position}; what it said is in {each.log}.")


def _of_silence(silent: Sequence[Silent], config: Config) -> str:
    numbers = [each.rank for each in silent]
    pids = [each.pid for each in silent]
    one = len(silent) == 1
    who = f"{ranks(numbers)} ({'process' if one else 'processes'} {listed(pids)}) {'has' if one else 'have'}"
    position = silent[0].position
    return f"{who} not answered for {seconds(patience(config, position))} {position}; {GOES_ON}"


def _who(each: Ending) -> str:
    return f"rank {each.rank} (process {each.pid})"
