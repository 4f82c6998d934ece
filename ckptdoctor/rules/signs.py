"""The keys that give a rule's problem away in an error of ``load_state_dict``: ``SIGNS`` in the module of the rule."""

from __future__ import annotations

import re
from enum import Enum

from ckptdoctor.noun import noun
from ckptdoctor.rules.messages import Way


class Repair(Enum):
    """What ``fix --auto`` with an error of ``load_state_dict`` as its target does about a cause."""

    SAFE = "renames"
    LOSS = "drops or computes something, with --unsafe-fixes"
    BY_HAND = "nothing; the cause names what does"
    NONE = "nothing, and nothing else does either"


@noun
class Sign:
    """Keys that give a problem away in an error of ``load_state_dict``: missing ones, unexpected ones, or both at once.

    Of several signs the least ``general`` takes its keys first.
    """

    meaning: str
    repair: Repair = Repair.NONE
    ways: tuple[Way, ...] = ()
    missing: str = ""  # a pattern of whole keys, "" for none
    unexpected: str = ""
    both: bool = False
    without: bool = False  # the model does without what is missing
    lonely: bool = False  # only keys of layers whose other keys fit
    beside: tuple[str, ...] = ()  # leaves of which the same layer must have one in the list
    general: int = 0

    def among_missing(self, keys: list[str]) -> list[str]:
        """The missing keys that show it."""
        return self._among(keys, self.missing)

    def among_unexpected(self, keys: list[str]) -> list[str]:
        """The unexpected keys that show it."""
        return self._among(keys, self.unexpected)

    def _among(self, keys: list[str], pattern: str) -> list[str]:
        if not pattern:
            return []
        found = [key for key in keys if re.fullmatch(pattern, key) is not None]
        if self.beside:
            there = set(keys)
            found = [key for key in found if any(f"{key.rpartition('.')[0]}.{leaf}" in there for leaf in self.beside)]
        if not self.lonely:
            return found
        others = {key.rpartition(".")[0] for key in set(keys).difference(found)}
        return [key for key in found if key.rpartition(".")[0] not in others]

    def enough(self, missing: list[str], unexpected: list[str]) -> bool:
        """Whether these keys are enough of a sign."""
        return bool(missing and unexpected) if self.both else bool(missing or unexpected)


def leaf(names: str) -> str:
    """The pattern of keys whose last tokens are these."""
    return rf"(?:.*\.)?(?:{names})"
