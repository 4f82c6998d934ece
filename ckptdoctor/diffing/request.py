"""Describes what is compared: the two checkpoints, and how."""

from __future__ import annotations

from math import isfinite

from ckptdoctor.errors import UsageError
from ckptdoctor.noun import noun


@noun
class DiffRequest:
    """Two paths, the part of each that matters, and tolerances for values. ``root_b`` None is ``root``."""

    a: str
    b: str
    root: str | None = None
    root_b: str | None = None
    rtol: float = 0.0
    atol: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rtol", "atol"):
            number = getattr(self, name)
            if not (isfinite(number) and number >= 0):
                raise UsageError(f"--{name} must not be negative: {number}.")
