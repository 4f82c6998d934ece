"""A cause of a failure: where a text names it, and, of an error of ``load_state_dict``, whether a command undoes it."""

from __future__ import annotations

from ckptdoctor.noun import noun
from ckptdoctor.rules.messages import Way, Weight
from ckptdoctor.rules.signs import Repair


@noun
class Cause:
    """The code of its rule ("" for none), what it means, and what to do; TARGET stands for the way to name the model.

    Without ``ways`` the command follows from ``repair``, and from those of the other causes in the same error.
    """

    code: str
    meaning: str
    repair: Repair
    ways: tuple[Way, ...] = ()


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
