"""One cause of an error of ``load_state_dict``, and whether a command of ckptdoctor undoes it."""

from __future__ import annotations

from enum import Enum

from ckptdoctor.explain.message import Way
from ckptdoctor.noun import noun


class Repair(Enum):
    """What ``fix --auto`` with the error as its target does about a cause."""

    SAFE = "renames"
    LOSS = "drops or computes something, with --unsafe-fixes"
    BY_HAND = "nothing; the cause names what does"
    NONE = "nothing, and nothing else does either"


@noun
class Cause:
    """The code of its rule ("" for none), what it means, and what to do; TARGET stands for the way to name the model.

    Without ``ways`` the command follows from ``repair``, and from those of the other causes in the same error.
    """

    code: str
    meaning: str
    repair: Repair
    ways: tuple[Way, ...] = ()
