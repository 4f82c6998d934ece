"""What a rank says about its own end: an exit status, and for an error a small file beside it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path

from ckptdoctor import errors
from ckptdoctor.errors import CkptDoctorError, TrainingError
from ckptdoctor.trainer.launch.sentences import first_line


class Status(IntEnum):
    """How a rank ends. 1 is also what Python itself ends with when something is wrong before the rank can report."""

    OK = 0
    """The run is over, or was stopped in good order."""
    FAILED = 1
    """An exception that nobody foresaw; the traceback is in the log."""
    REFUSED = 3
    """An error with a sentence for the user: bad data, nowhere to write."""
    LOST_CONTACT = 4
    """This rank is well; another one is dead or silent."""


@dataclass(frozen=True)
class Report:
    """The error that a rank ended with."""

    kind: str
    """The name of its class."""
    sentence: str

    @classmethod
    def of(cls, error: BaseException) -> Report:
        """Of an exception: the whole sentence of an error for users, the first line of any other."""
        return cls(type(error).__name__, error.message if isinstance(error, CkptDoctorError) else first_line(error))

    def write(self, path: Path) -> None:
        """Leave it for the launcher."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Report | None:
        """What a rank left; None when it could not."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            return cls(values["kind"], values["sentence"])
        except (OSError, ValueError):  # it left nothing, or was killed while it wrote
            return None

    def error(self) -> CkptDoctorError:
        """The error itself, of the class it had."""
        known = getattr(errors, self.kind, TrainingError)
        known = known if isinstance(known, type) and issubclass(known, CkptDoctorError) else TrainingError
        return known(self.sentence)
