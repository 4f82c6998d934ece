"""What an error of ``load_state_dict`` means: every rule that can judge one is asked, and takes what it explains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import groupby

from ckptdoctor.explain.cause import Hit
from ckptdoctor.explain.load_error import line_of, words_of
from ckptdoctor.explain.text import PastedText
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Judge, LoadError, Repair
from ckptdoctor.rules.messages import SEE, Way, Weight
from ckptdoctor.rules.registry import all_rules


def hits(error: LoadError, text: PastedText) -> Iterator[Hit]:
    """One hit for each cause, the one that says most of the file first."""
    weight = Weight.OUTCOME if error.warning else Weight.CAUSE
    words = line_of(error, text) if error.warning else words_of(error)
    found = list(causes(error))
    for rule, cause in found:
        ways = _ways(cause, [each for _, each in found], error)
        code, also = (rule.code, rule.also) if cause.code is None else (cause.code, ())
        yield Hit(code, words, cause.meaning, ways, error.offset, also, weight)


def causes(error: LoadError) -> Iterator[tuple[Rule, Cause]]:
    """What the rules make of an error, one after another: what one explains the next does not see any more."""
    rest = IncompatibleKeys(error, error.missing, error.unexpected, error.mismatched)
    for _, judges in groupby(_judges(), key=_turn):
        found = [(rule, cause) for rule, judge in judges for cause in judge.ask(rest)]
        found.sort(key=lambda each: -each[1].size)
        yield from found
        if found:
            rest = rest.without([cause for _, cause in found])


@cache
def _judges() -> tuple[tuple[Rule, Judge], ...]:
    """Every way to ask a rule, in the order in which they are asked."""
    return tuple(sorted([(rule, judge) for rule in all_rules() for judge in rule.judges], key=_turn))


def _turn(asked: tuple[Rule, Judge]) -> tuple[int, int]:
    return asked[1].turn, asked[1].general


def _ways(cause: Cause, all_causes: list[Cause], error: LoadError) -> tuple[Way, ...]:
    """What to do: the cause's own way where it is the only one, else one command for all of them, where there is one.

    The error is the target where it is a whole one; a warning, or a list that is cut short, tells too little of it.
    """
    repairs = {each.repair for each in all_causes}
    if cause.ways and (len(all_causes) == 1 or Repair.NONE in repairs or Repair.BY_HAND in repairs):
        ways = cause.ways
    elif Repair.BY_HAND in repairs or Repair.NONE in repairs:
        ways = (SEE,)
    else:
        unsafe = " --unsafe-fixes" * (Repair.LOSS in repairs)
        ways = (Way("repair it", f"ckptdoctor fix FILE --auto TARGET{unsafe}"),)
    target = "--error TEXT" if error.complete and not error.warning else "--model MODULE:CLASS"
    return tuple([replace(way, command=way.command.replace("TARGET", target)) for way in ways])
