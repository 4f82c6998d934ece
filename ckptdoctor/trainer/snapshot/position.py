"""How far a run has come, and the folder name that says so."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"epoch-(\d{4,})(?:-step-(\d{4,}))?")


@dataclass(frozen=True, order=True)
class Position:
    """A place in a run. Positions are ordered by how far they are."""

    epoch: int = 0
    """Epochs that are complete."""
    step: int = 0
    """Steps that are done of the next one."""
    best_accuracy: float = 0.0
    """The best test accuracy so far, as a fraction."""

    @property
    def name(self) -> str:
        """The name of its checkpoint folder: ``epoch-0003``, or ``epoch-0002-step-0057`` in the middle of an epoch."""
        return f"epoch-{self.epoch:04}" + (f"-step-{self.step:04}" if self.step else "")


def parse(name: str) -> Position | None:
    """The position that a folder name stands for; None for any other name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    position = Position(int(found[1]), int(found[2] or 0))
    return position if position.name == name else None
