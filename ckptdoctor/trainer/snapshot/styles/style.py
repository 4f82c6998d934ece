"""What a style of saving is: a file name, and a function that writes the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ckptdoctor.trainer.snapshot.collect import Collected
from ckptdoctor.trainer.strategies.strategy import Strategy


@dataclass(frozen=True)
class Style:
    """One way of saving a model. ``write`` is called on the first rank alone."""

    name: str
    file: str
    format: str
    """The container, as ``ckptdoctor check`` names it."""
    write: Callable[[Path, Collected, Strategy], None]
    tagged: bool = True
    """Whether torch.save writes it, so that it has device tags."""
    wrapped: bool = False
    """Whether its keys are those of the wrapped model."""
