"""What an examination says: findings, what was skipped, and the report over one or more files."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ckptdoctor.checkpoint import Checkpoint, Container, KeyPath
from ckptdoctor.edits import Fix


class Severity(str, Enum):
    """How bad a finding is. Compare with ``rank``: higher is worse."""

    INFO = "info"  # worth knowing; nothing is wrong
    WARNING = "warning"  # loads in some set-ups only, or is silently wrong in some
    ERROR = "error"  # cannot load, or gives a wrong result

    @property
    def rank(self) -> int:
        """0 for info, 1 for warning, 2 for error."""
        return ("info", "warning", "error").index(self.value)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a finding shows: a key path, a record of an archive, a byte range; whichever are known."""

    path: KeyPath | None = None
    member: str | None = None
    offset: int | None = None
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause, however many keys it touches.

    ``message`` is one sentence without a full stop ("all 320 keys of state_dict begin with \"module.\"").
    ``cause`` says in a sentence or two why it is so and why it matters. ``torch_says`` are the lines of the error
    that the user meets, exactly as torch or safetensors words it (empty: it loads without a word).
    ``advice`` says what to do where there is no ``fix``, or beside it.
    """

    code: str
    name: str
    severity: Severity
    message: str
    cause: str = ""
    torch_says: tuple[str, ...] = ()
    advice: str = ""
    keys: tuple[KeyPath, ...] = ()
    location: Location = field(default_factory=Location)
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """What was not examined, and why. Nothing that was skipped is ever called healthy."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class CureStep:
    """Coverage of a reference after one cure: keys and parameters (elements) that then fit."""

    title: str
    code: str
    keys: int
    parameters: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a reference the checkpoint fits: keys with the right shape, and elements; before and after cures."""

    reference: str
    state_dict: KeyPath
    total_keys: int
    total_parameters: int
    keys: int
    parameters: int
    steps: tuple[CureStep, ...] = ()


@dataclass(frozen=True, slots=True)
class FileReport:
    """All that is said of one file. ``error`` is set when it could not be examined at all (exit status 2)."""

    path: str
    container: Container | None
    checkpoint: Checkpoint | None
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    coverage: Coverage | None = None
    seconds: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The reports over all files that were asked for, in the order they were asked for."""

    files: tuple[FileReport, ...]
