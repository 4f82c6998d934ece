"""Tells an examination as one event after another. Command line, browser and Python read the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from ckptdoctor.checkpoint import Checkpoint, Container
from ckptdoctor.checkpoint.progress import Progress
from ckptdoctor.findings import FileReport, Finding, Skipped
from ckptdoctor.noun import noun

if TYPE_CHECKING:
    from ckptdoctor.values.statistics import Values


@noun
class Recognised:
    """The file is open, and its first bytes say what it is."""

    container: Container


@noun
class Opened:
    """Its headers have been read: the contents can be shown."""

    checkpoint: Checkpoint


@noun
class Found:
    """A rule has found something; in the order of discovery, not of severity."""

    finding: Finding


@noun
class LeftOut:
    """Something was not examined."""

    skipped: Skipped


@noun
class Measured:
    """Every value has been read: what they are, tensor by tensor, where the settings ask for ``pictures``."""

    values: Values


@noun
class Finished:
    """The last event of each file: everything, worst finding first."""

    report: FileReport


Event = Union[Recognised, Opened, Found, LeftOut, Progress, Measured, Finished]
