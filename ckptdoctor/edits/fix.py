"""Defines a fix: a title, its edits, and whether it can be applied without asking; and the steps of a repair."""

from __future__ import annotations

from enum import Enum

from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.edits.kinds import Edit
from ckptdoctor.noun import noun


class Safety(str, Enum):
    """Whether a fix may be applied without asking."""

    SAFE = "safe"  # lossless and reversible: no value changes
    # drops only what the target does not want, or fills in what it wants with the one value that this can have: safe
    # for the reference that it was found with, and applied without asking only where that is named again
    CONFIRMED = "confirmed"
    UNSAFE = "unsafe"  # changes or drops something: only with --unsafe-fixes or its own option


@noun
class Fix:
    """One fix. ``option`` is how to ask for it on the command line: ``--strip-module``, ``--select A705``."""

    title: str
    edits: tuple[Edit, ...]
    safety: Safety
    option: str

    @property
    def options(self) -> tuple[str, ...]:
        """All that has to be said for it: ``option``, and ``--unsafe-fixes`` where that does not stand for it alone.

        A fix that is not safe takes the second word where its rule's code asks for it, and none with an option of its
        own. ``--auto`` knows the target, and what that confirms takes no second word.
        """
        by_code = self.option.startswith("--select") and self.safety is not Safety.SAFE
        guessed = self.option.startswith("--auto") and self.safety is Safety.UNSAFE
        return (self.option, "--unsafe-fixes") if by_code or guessed else (self.option,)


@noun
class Step:
    """One repair of the plan.

    ``label`` is how it was asked for: a rule's code ("N401"), an option ("--strip-module"), or "values" where the bytes
    themselves ask for it; ``name`` is the rule's name, "" for an option, "same-bytes" for what values ask for. ``fit``
    is (keys that fit after it, keys that the target wants), where there is a target.
    """

    label: str
    name: str
    title: str
    safety: Safety
    edits: tuple[Edit, ...]
    changes: tuple[Change, ...]
    fit: tuple[int, int] | None = None


@noun
class Change:
    """What one edit does: ``pairs`` of names before and after ("" after: it goes), and how many of what it touches.

    ``place`` is the key path that the names belong to, None where they are not keys. ``counts`` are (number, noun).
    """

    kind: str
    pairs: tuple[tuple[str, str], ...]
    counts: tuple[tuple[int, str], ...]
    place: KeyPath | None = None
