"""Defines every error ckptdoctor raises on purpose, as one tree.

    CkptDoctorError              base: one sentence that says what, where and what next
    ├── UsageError               invalid usage (a bad option, rule code or path pattern)
    ├── UnreadableError          the path cannot be read at all (a directory, no permission)
    │   └── MissingFileError     there is no such file (a FileNotFoundError, too)
    ├── NotACheckpointError      the bytes are not a checkpoint, or a container that is not read yet
    ├── DamagedError             a checkpoint, but damaged in a part that is needed
    │   ├── TruncatedError       it ends before it should
    │   └── HostileError         it is built to exhaust or mislead its reader
    ├── UnprovenError            decode → encode does not give the same bytes, or a repair does not add up: refused
    ├── RefusedError             an edit that cannot be done without loss or a guess
    ├── WriteError               the output could not be written, or did not verify; the original is untouched
    ├── MissingPackageError      a package that this is done with is not installed (an ImportError, too)
    └── TrainingError            a training run cannot go on: a rank is dead or silent, a device is missing

Programming errors are not caught, and are not in this tree.
"""

from __future__ import annotations

from errno import ENOENT
from functools import partial


class CkptDoctorError(Exception):
    """What is wrong, where, and what to do next, in one sentence.

    ``offset`` is the byte position in the file (or in ``member``, a record of an archive) where it shows.
    """

    def __init__(self, message: str, *, offset: int | None = None, member: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.member = member

    def __str__(self) -> str:  # ImportError and OSError have their own ideas
        return self.message

    def __repr__(self) -> str:
        from ckptdoctor.brief import brief_error

        return brief_error(self, self.message)


class UsageError(CkptDoctorError):
    """Invalid usage: a bad option, rule code or path pattern."""


class UnreadableError(CkptDoctorError):
    """The path cannot be read at all: missing, a directory, or no permission."""


class MissingFileError(UnreadableError, FileNotFoundError):
    """There is no such file: a FileNotFoundError, with ``filename`` and ``errno`` as Python's own have them."""

    def __init__(self, message: str, *, filename: str) -> None:
        super().__init__(message)
        self.filename = filename
        self.errno = ENOENT

    def __reduce__(self) -> tuple[object, ...]:
        """Say how to make it again in another process: with its ``filename``, which ``args`` do not have."""
        return partial(type(self), filename=self.filename), (self.message,), vars(self)


class NotACheckpointError(CkptDoctorError):
    """The bytes are some other thing, or a container that is recognised but not read yet."""


class DamagedError(CkptDoctorError):
    """A checkpoint, but broken in a place that must be whole."""


class TruncatedError(DamagedError):
    """The file ends before its contents do."""


class HostileError(DamagedError):
    """The file is built to exhaust or to mislead whoever reads it."""


class UnprovenError(CkptDoctorError):
    """A lossless repair cannot be promised: bytes are not reproduced, or contents do not follow from the edits."""


class RefusedError(CkptDoctorError):
    """An edit was asked for that cannot be done without loss or without a guess."""


class WriteError(CkptDoctorError):
    """The output could not be written or did not verify; the original is untouched."""


class MissingPackageError(CkptDoctorError, ImportError):
    """What was asked for takes a package that is not installed; the sentence has the command that installs it."""


class TrainingError(CkptDoctorError):
    """A training run cannot start or go on: a rank died or fell silent, or what it needs is not on this machine."""


class StoppedError(Exception):
    """Long work ends early, because whoever waited for it has had enough; it never reaches a user."""
