"""The rules that leave out keys which a target does not want share the fix, and its options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from ckptdoctor.checkpoint.patterns import drop_patterns
from ckptdoctor.edits import Drop, Fix, Safety
from ckptdoctor.findings import Location
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.framework import Problem
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option, choice_of
from ckptdoctor.shell import word

_PATTERNS = 8  # --drop options on one command line
_LEADS = 4  # modules that one line of Python names


def drop_fix(comparison: Comparison, keys: Iterable[str], safety: Safety) -> tuple[Fix | None, str]:
    """Return the fix that drops these keys (under their final names), or advice where it takes too many options.

    Of an unsafe one that drops the only copy of a weight no command is printed (``examine.printable``).
    """
    going = [comparison.renamed.here[key] for key in keys]
    patterns = drop_patterns(comparison.checkpoint, going)
    option = " ".join([f"--drop {word(pattern)}" for pattern in patterns[:_PATTERNS]])
    if len(patterns) > _PATTERNS and safety is not Safety.UNSAFE:
        return None, (
            f"They are scattered: it would take {len(patterns):,} options such as --drop {patterns[0]} to leave "
            "them out."
        )
    title = f"drop {wording.plural(len(going), 'key')}"
    option = option if len(patterns) <= _PATTERNS else auto_option(comparison)
    return Fix(title, (Drop(tuple([tensor.path for tensor in going])),), safety, option), ""


def leaving_out(comparison: Comparison, keys: Sequence[str]) -> str:
    """Return the line of Python that loads all but these keys of another shape (as they are called after all renames).

    "" where it takes more than a line, or another key has another shape, too. The file keeps them.
    """
    own = {tensor.key for tensor in comparison.plain.here.values()}
    if comparison.nested or comparison.steps or set(comparison.renamed.mismatched) != set(keys):
        return ""
    leads = tuple(dict.fromkeys([f"{key.rpartition('.')[0]}." for key in keys]))
    gone = set(keys)
    if "." in leads or len(leads) > _LEADS or any(key.startswith(leads) and key not in gone for key in own):
        return ""
    named = json.dumps(leads[0]) if len(leads) == 1 else f"({', '.join(map(json.dumps, leads))})"
    return (
        "model.load_state_dict({key: value for key, value in weights.items() "
        f"if not key.startswith({named})}}, strict=False)"
    )


def unexpected_problem(
    comparison: Comparison, keys: tuple[str, ...], what: str, cause: str, safety: Safety = Safety.CONFIRMED
) -> Problem:
    """Return the problem of keys that are here, are ``what`` the message says, and are not wanted."""
    choice = choice_of(comparison, {comparison.renamed.here[key].key for key in keys})
    fix, advice = drop_fix(comparison, keys, safety) if choice is None else (None, choice.advice)
    return Problem(
        message=f"{keys_of_all(comparison, keys)} {what}",
        cause=cause,
        torch_says=(wording.unexpected_line(keys),),
        advice=advice,
        keys=tuple([comparison.renamed.here[key].path for key in keys]),
        location=Location(path=comparison.path),
        fix=fix,
        commands=() if choice is None else choice.commands,
    )


def keys_of_all(comparison: Comparison, keys: tuple[str, ...]) -> str:
    """Return how many of the keys here: ``24 of 320 keys of state_dict``."""
    total = wording.plural(len(comparison.renamed.here), "key")
    return f"{len(keys):,} of {total}{wording.of_place(comparison.path)}"
