"""The explanation of a text: its causes, the file it is about, and what that file says to it."""

from __future__ import annotations

from ckptdoctor.explain import other_messages
from ckptdoctor.explain.cause import Hit
from ckptdoctor.explain.recognise import recognised
from ckptdoctor.explain.source_file import source_file
from ckptdoctor.explain.text import PastedText, cleaned
from ckptdoctor.noun import noun
from ckptdoctor.rules.registry import find_rule


@noun
class Confirmation:
    """What a file says to an explanation: confirmed (None: it cannot tell), and why in one sentence."""

    confirmed: bool | None
    why: str


@noun
class Explanation:
    """The causes, the root first, of a text of so many lines. ``file`` is the checkpoint that it is about, if known.

    ``given`` says that the person named the file, not the text. ``verdict`` is about the root. ``source`` is the file
    that the text was read from, if it was one.
    """

    hits: tuple[Hit, ...]
    lines: int
    left_out: int
    file: str | None = None
    given: bool = False
    verdict: Confirmation | None = None
    source: str | None = None


def explain(raw: str, file: str | None = None, source: str | None = None) -> Explanation:
    """What the text means. ``file`` is the checkpoint that it is about, ``source`` the text's own file, where known."""
    text = cleaned(raw)
    hits = tuple(recognised(text))
    return Explanation(hits, len(text.lines), text.left_out, file or _file(text, hits), file is not None, None, source)


def rule_name(code: str) -> str:
    """The name of the rule that a message speaks of, or of what no rule looks for."""
    rule = find_rule(code)
    return rule.name if rule is not None else other_messages.NAMES[code]


def _file(text: PastedText, hits: tuple[Hit, ...]) -> str | None:
    return source_file(text, hits[0].offset if hits else None)
