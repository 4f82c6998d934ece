"""What was asked of an examination."""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptdoctor.engine.selection import Selection
from ckptdoctor.findings import Severity


@dataclass(frozen=True, slots=True)
class Settings:
    """What to examine and how deeply.

    ``like`` is the path of another checkpoint whose keys and shapes are wanted. ``root`` is the key path of the state
    dict that matters ("state_dict", parts joined by "/"). ``fail_on`` is the lowest severity that makes the exit
    status 1; None: findings never do.
    """

    selection: Selection = field(default_factory=Selection)
    deep: bool = False
    like: str | None = None
    root: str | None = None
    fail_on: Severity | None = Severity.WARNING
