"""Judges the checkpoints that a training run has just saved, with a line for each; the training goes on in any case."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ckptdoctor.checkpoint.missing import missing
from ckptdoctor.crash import one_line, wants_trace
from ckptdoctor.errors import CkptDoctorError, DamagedError
from ckptdoctor.rendering.watch import line
from ckptdoctor.runs.grouping import Candidate, candidate_at
from ckptdoctor.runs.validity import examined
from ckptdoctor.watching.files import files_of
from ckptdoctor.watching.judging import Base, Watched, base_of, judged, require_fail_on

Tell = Callable[[str], None]


def to_stderr(text: str) -> None:
    """Print a line on stderr, at once."""
    print(f"ckptdoctor: {text}", file=sys.stderr, flush=True)


class SavedCheckpoints:
    """The checkpoints of one training: each is compared with the valid one before it.

    ``tell`` is called with the line of each. ``fail_on`` is what raises DamagedError: "invalid", "unresumable" or
    "never". With ``headers_only`` no value is read.
    """

    def __init__(self, fail_on: str = "never", headers_only: bool = False, tell: Tell | None = None) -> None:
        require_fail_on(fail_on)
        self._fail_on = fail_on
        self._headers_only = headers_only
        self._tell = to_stderr if tell is None else tell
        self._before: Base | None = None
        self._reason = ""

    def check(self, path: str) -> Watched | None:
        """Print the line of a checkpoint that is complete, and return what was found; None where that went wrong.

        Raises DamagedError where ``fail_on`` asks for it, and nothing else.
        """
        try:
            found = self.judged(candidate_at(path))
            self._tell(line(found, resumable=found.unresumable != self._reason))
            self._reason = found.unresumable
        except Exception as error:  # a line about a checkpoint must not end the training that saved it
            if wants_trace():
                raise
            why = error.message if isinstance(error, CkptDoctorError) else one_line(error)
            self._tell(f"{path} could not be checked: {why}")
            return None
        failed = found.fails(self._fail_on)
        if failed:
            raise DamagedError(f"{path} {failed}: {(found.trouble or found.unresumable).rstrip('.')}.")
        return found

    def judged(self, candidate: Candidate) -> Watched:
        """Return what is found of a candidate. Raises MissingFileError where it is not there."""
        files = files_of(candidate)
        if files is None:
            raise missing(candidate.path)
        found = examined(candidate)
        line = judged(candidate.path, found, files, self._before, headers_only=self._headers_only)
        if not found.trouble:
            self._before = base_of(found, files, headers_only=self._headers_only)
        return line
