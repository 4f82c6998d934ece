"""The nouns: a message that people meet, what to do about it, and where it was met."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from ckptdoctor.noun import noun


class Weight(IntEnum):
    """How much a message tells of the cause; the lower, the more."""

    CAUSE = 0
    """It names the cause."""

    OUTCOME = 1
    """It tells what came of another failure, or only warns; alone it is explained all the same."""

    ECHO = 2
    """It says so little that next to any other message it is not mentioned."""


@noun
class Way:
    """One thing to do: a label ("load it with") and code or a command. FILE stands for the file's name."""

    label: str
    command: str


@noun
class Message:
    """A message: the words that it always has, and a pattern for those that follow at once.

    Blanks in ``says`` and ``then`` stand for nothing: they are compared with text that has none. ``says`` are other
    wordings of one message. ``meaning`` and ``ways`` may name the groups of ``then`` in braces. ``near`` are words of
    which one has to stand close by, always; ``among``: wherever there is a traceback to look in.
    ``code`` is the rule's, "" where no rule is about it; ``also`` are rules that the same words may mean.
    """

    code: str
    says: tuple[str, ...]
    meaning: str
    ways: tuple[Way, ...] = ()
    then: str = ""
    also: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    among: tuple[str, ...] = ()
    weight: Weight = Weight.CAUSE
    holds: Callable[[dict[str, str]], bool] | None = None  # what the groups of ``then`` have to be, beyond the pattern


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


CHECK = Way("see what is wrong", "ckptdoctor check FILE")
DEEP = Way("see what is damaged", "ckptdoctor check FILE --deep")
SAFE = Way("repair it", "ckptdoctor fix FILE")
# where keys or shapes do not fit, only the target tells which repair is meant
COMPARE = Way("see what is wrong", "ckptdoctor check FILE --model MODULE:CLASS")
AUTO = Way("or repair it for your model", "ckptdoctor fix FILE --auto --model MODULE:CLASS")
