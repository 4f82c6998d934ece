"""What happens during an examination, one event after another. Command line, browser and Python read the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from ckptdoctor.checkpoint import Checkpoint, Container
from ckptdoctor.findings import FileReport, Finding, Skipped
from ckptdoctor.late import late_dataclass

if TYPE_CHECKING:
    from ckptdoctor.facts.values import Values


@dataclass(frozen=True, slots=True)
class Recognised:
    """The file is open, and its first bytes say what it is."""

    container: Container


@dataclass(frozen=True, slots=True)
class Opened:
    """Its headers have been read: the contents can be shown."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Found:
    """A rule has found something; in the order of discovery, not of severity."""

    finding: Finding


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something was not examined."""

    skipped: Skipped


@late_dataclass(frozen=True)
class Progress:
    """How far reading every byte is: ``done`` of ``total`` bytes of ``what``, said several times a second."""

    what: str
    done: int
    total: int


@late_dataclass(frozen=True)
class Measured:
    """Every value has been read: what they are, tensor by tensor, for pictures of them."""

    values: Values


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of each file: everything, worst finding first."""

    report: FileReport


Event = Union[Recognised, Opened, Found, LeftOut, Progress, Measured, Finished]
