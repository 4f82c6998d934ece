"""What the rules share that leave keys out which a target does not want: the fix, and its options."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from ckptdoctor.edits import Drop, Fix, Safety
from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.facts.dropping import drop_patterns
from ckptdoctor.findings import Location
from ckptdoctor.rules import wording
from ckptdoctor.rules.choosing import choice_of
from ckptdoctor.rules.framework import Problem

_PATTERNS = 8  # --drop options on one command line


def drop_fix(comparison: Comparison, keys: Iterable[str], safety: Safety) -> tuple[Fix | None, str]:
    """The fix that drops these keys (as they are called after all cures), or advice where it takes too many options."""
    going = [comparison.cured.here[key] for key in keys]
    patterns = drop_patterns(comparison.checkpoint, going)
    shown = [f"--drop {shlex.quote(pattern)}" for pattern in patterns[:_PATTERNS]]
    if len(patterns) > _PATTERNS:
        return None, f"They lie scattered: {len(patterns):,} options such as {shown[0]} would leave them out."
    title = f"drop {wording.count(len(going), 'key')}"
    return Fix(title, (Drop(tuple([tensor.path for tensor in going])),), safety, " ".join(shown)), ""


def unexpected_problem(
    comparison: Comparison, keys: tuple[str, ...], what: str, cause: str, safety: Safety = Safety.CONFIRMED
) -> Problem:
    """Keys that are here, are ``what`` the message says, and are not wanted."""
    choice = choice_of(comparison, {comparison.cured.here[key].key for key in keys})
    fix, advice = drop_fix(comparison, keys, safety) if choice is None else (None, choice.advice)
    return Problem(
        message=f"{counted(comparison, keys)} {what}",
        cause=cause,
        torch_says=(wording.unexpected_keys(keys),),
        advice=advice,
        keys=tuple([comparison.cured.here[key].path for key in keys]),
        location=Location(path=comparison.path),
        fix=fix,
        commands=() if choice is None else choice.commands,
    )


def missing_problem(comparison: Comparison, keys: tuple[str, ...], what: str, cause: str, advice: str) -> Problem:
    """Keys that are wanted, are ``what`` the message says, and are not here."""
    there = f"{wording.count(len(comparison.reference.tensors), 'key')} of {comparison.reference.source}"
    return Problem(
        message=f"{len(keys):,} of {there} {what}",
        cause=cause,
        torch_says=(wording.missing_keys(keys),),
        advice=advice,
        keys=tuple([(*comparison.path, key) for key in keys]),
        location=Location(path=comparison.path),
    )


def counted(comparison: Comparison, keys: tuple[str, ...]) -> str:
    """How many of the keys here: ``24 of 320 keys of state_dict``."""
    total = wording.count(len(comparison.cured.here), "key")
    return f"{len(keys):,} of {total}{wording.of_place(comparison.path)}"
