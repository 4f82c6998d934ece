"""Some keys give a rule's problem away in an error of ``load_state_dict``: ``SIGNS`` in the module of the rule."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckptdoctor.noun import noun
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Judge, Repair, Turn
from ckptdoctor.rules.messages import Way


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

    @property
    def judge(self) -> Judge:
        """The sign as a way to ask its rule."""
        return Judge(Turn.FUSED if self.both else Turn.LEFTOVER, self._causes, self.general)

    def _causes(self, rest: IncompatibleKeys) -> Iterator[Cause]:
        missing = self._among(rest.missing, self.missing)
        unexpected = self._among(rest.unexpected, self.unexpected)
        if (missing and unexpected) if self.both else (missing or unexpected):
            filled = bool(missing) and self.without
            ways = (NOT_STRICT,) if filled else self.ways
            repair = Repair.BY_HAND if filled else self.repair
            yield Cause(self.meaning, repair, ways, missing=missing, unexpected=unexpected)

    def _among(self, keys: tuple[str, ...], pattern: str) -> list[str]:
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


def leaf_among(names: str) -> str:
    """Return the pattern of keys whose last tokens are these."""
    return rf"(?:.*\.)?(?:{names})"


NOT_STRICT = Way("load it with", "model.load_state_dict(weights, strict=False)  # and look at what it returns")
