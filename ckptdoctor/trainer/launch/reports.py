"""A rank tells of its own end by an exit status and a small file; here are both, and the words of that sentence."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path

from ckptdoctor import errors
from ckptdoctor.errors import CkptDoctorError, TrainingError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.launch.positions import RankPosition
from ckptdoctor.wording import listed

GOES_ON = "the run ended; continue from the last complete checkpoint with --resume."

JOINING = 60.0
"""Seconds that ranks wait for each other at the start at least, however short the timeout: a cold disk is slow."""


def patience(config: RunConfig, position: RankPosition) -> float:
    """Return the seconds that others wait for a rank that is there, before they give it up."""
    return config.timeout if position.epoch else max(config.timeout, JOINING)


def seconds(number: float) -> str:
    """Write it as "10 s"."""
    return f"{number:g} s"


def signal_name(number: int) -> str:
    """Write it as "signal 9 (SIGKILL)"."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:  # the real-time signals between the first and the last have no names
        return f"signal {number}"


def ranks(numbers: Sequence[int]) -> str:
    """Write it as "rank 1", or "ranks 1, 2 and 3"."""
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {listed(numbers)}"


def first_line(error: BaseException, limit: int = 300) -> str:
    """Return the error in one line, with the name of its class: "RuntimeError: …"."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


class Status(IntEnum):
    """The exit status of a rank. 1 is also Python's own, when something is wrong before the rank can report."""

    OK = 0
    """The run is over, or was stopped in good order."""
    FAILED = 1
    """An exception that nobody foresaw; the traceback is in the log."""
    REFUSED = 3
    """An error with a sentence for the user: bad data, nowhere to write."""
    LOST_CONTACT = 4
    """This rank is well; another one is dead or silent."""


@dataclass(frozen=True)
class RankReport:
    """The error that a rank ended with."""

    kind: str
    """The name of its class."""
    sentence: str

    @classmethod
    def of(cls, error: BaseException) -> RankReport:
        """Return what is told of an exception: the whole sentence of an error for users, the first line of others."""
        return cls(type(error).__name__, error.message if isinstance(error, CkptDoctorError) else first_line(error))

    def write(self, path: Path) -> None:
        """Leave it for the launcher."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> RankReport | None:
        """Return the report that a rank left, or None when it could not."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            return cls(values["kind"], values["sentence"])
        except (OSError, ValueError):  # it left nothing, or was killed while it wrote
            return None

    def error(self) -> CkptDoctorError:
        """Return the error itself, of the class it had."""
        known = getattr(errors, self.kind, TrainingError)
        known = known if isinstance(known, type) and issubclass(known, CkptDoctorError) else TrainingError
        return known(self.sentence)
