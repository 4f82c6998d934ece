"""Judges contents that are like others: what a rule finds without a look at what differs holds for all of them.

Each rule runs once over contents of which nobody may look at what differs (``checkpoint.blind``). One that ends without
a look, with the same findings, is not asked again; the others are, for every file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.blind import Looked
from ckptdoctor.findings import Finding
from ckptdoctor.formats.alike.remembered import Likeness
from ckptdoctor.noun import noun
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.index import INSIDE
from ckptdoctor.rules.registry import other_rules, rules_in

Condition = Callable[[Checkpoint], bool]


@noun
class Judged:
    """What is known of all that are like each other.

    ``found`` are the findings of rules that need not be asked, by their codes. ``asked`` are modules with rules that
    may have something to say, with the condition for it, where that is to be asked as well.
    """

    found: tuple[tuple[str, tuple[Finding, ...]], ...]
    asked: tuple[tuple[str, Condition | None, Rule | None], ...]


def findings_about(contents: Checkpoint, likeness: Likeness) -> Iterator[Finding]:
    """Yield what the rules find in contents that are like others, ordered by code."""
    known = likeness.kept.get("judged")
    if known is None:
        known = likeness.kept["judged"] = _judged(contents, likeness.blind)
    found = [*known.found]
    for name, when, alone in known.asked:
        if when is None or when(contents):
            rules = rules_in(name) if alone is None else (alone,)
            found += [(each.code, tuple(each.run(contents))) for each in rules if _reads(each, contents)]
    for _, some in sorted(found, key=lambda each: each[0]):
        yield from some


def _judged(contents: Checkpoint, blind: Checkpoint) -> Judged:
    found: list[tuple[str, tuple[Finding, ...]]] = []
    asked: list[tuple[str, Condition | None, Rule | None]] = []
    for name, when in INSIDE.items():
        holds = _blindly(partial(when, blind))
        if holds is None:
            asked.append((name, when, None))
        for each in rules_in(name) if holds else ():
            if not _reads(each, contents):
                continue
            said = tuple(each.run(contents))
            if _blindly(partial(_finds, each, blind, said)):
                found.append((each.code, said))
            else:
                asked.append((name, None, each))
    asked += [("", None, each) for each in other_rules()]
    return Judged(tuple([each for each in found if each[1]]), tuple(asked))


def _finds(rule: Rule, contents: Checkpoint, wanted: tuple[Finding, ...]) -> bool:
    return tuple(rule.run(contents)) == wanted


def _blindly(ask: Callable[[], bool]) -> bool | None:
    """Return the answer to what was asked without a look; None where there is none."""
    try:
        return ask()
    except (Looked, Exception):  # noqa: BLE001 - whatever went wrong, it is asked again of what has values
        return None


def _reads(rule: Rule, contents: Checkpoint) -> bool:
    return isinstance(contents, rule.subject)
