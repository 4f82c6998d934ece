"""A cause of a failure, where a text names it."""

from __future__ import annotations

from ckptdoctor.noun import noun
from ckptdoctor.rules.messages import Way, Weight


@noun
class Hit:
    """A message that was met: its own words, what it means here, and where (offset in the squeezed text)."""

    code: str
    words: str
    meaning: str
    ways: tuple[Way, ...]
    offset: int
    also: tuple[str, ...] = ()
    weight: Weight = Weight.CAUSE
