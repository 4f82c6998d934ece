"""N402 and N409 share the one prefix that makes a reference fit, as a problem with its fix."""

from __future__ import annotations

from ckptdoctor.checkpoint import StateDict, show_part
from ckptdoctor.edits import Fix, Safety
from ckptdoctor.findings import Location
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.prefixes import Prefix
from ckptdoctor.rules.framework import Problem
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import choice_of
from ckptdoctor.rules.kit.renames import rename_edits
from ckptdoctor.shell import word


def prefix_problem(comparison: Comparison, state_dict: StateDict, prefix: Prefix, cause: str) -> Problem:
    """Return what the prefix does for the fit, and the fix, which does the fixes before it as well."""
    before = comparison.before_prefix
    renamed = [key for key in before.here if prefix.change(key) != key]
    choice = choice_of(comparison, {before.here[key].key for key in renamed})
    return Problem(
        message=_message(comparison, prefix, len(renamed)),
        cause=cause,
        torch_says=(
            *((wording.missing_line(before.missing),) if before.missing else ()),
            *((wording.unexpected_line(before.unexpected),) if before.unexpected else ()),
        ),
        advice="" if choice is None else choice.advice,
        keys=tuple([before.here[key].path for key in renamed]),
        location=Location(path=state_dict.path),
        fix=_fix(comparison, state_dict, prefix, renamed) if choice is None else None,
        commands=() if choice is None else choice.commands,
    )


def _message(comparison: Comparison, prefix: Prefix, renamed: int) -> str:
    total = len(comparison.reference.tensors)
    fit = (
        f"{len(comparison.after_prefix.fits):,} of {wording.plural(total, 'key')} of {comparison.reference.source} fit"
    )
    before = f"{len(comparison.before_prefix.fits):,} without"
    if prefix.added:
        return f'with "{prefix.text}" before each key {fit} ({before})'
    of = len(comparison.before_prefix.here)
    share = wording.all_of(of, "key") if renamed == of else f"{renamed:,} of {wording.plural(of, 'key')}"
    verb = "begins" if renamed == 1 else "begin"
    return f'{share} {verb} with "{prefix.text}", and with that stripped {fit} ({before} that)'


def _fix(comparison: Comparison, state_dict: StateDict, prefix: Prefix, renamed: list[str]) -> Fix | None:
    dropped = tuple([each.drops.path for each in comparison.name_fixes if each.drops is not None])
    edits, collision = rename_edits(state_dict, comparison.name_after_prefix, dropped)
    if collision is not None:  # only keys without tensors can still be in the way
        return None
    verb = "add" if prefix.added else "strip"
    # whatever wrappers put before keys goes by one option, and before the prefix (repair.request)
    options = [f"--drop {word(show_part(path[-1]))}" for path in dropped]
    options += ["--strip-module"] if comparison.name_fixes else []
    return Fix(
        f'{verb} "{prefix.text}"',
        edits,
        Safety.SAFE if _confirmed(comparison, prefix, renamed) else Safety.UNSAFE,
        " ".join([*options, f"--{verb}-prefix {word(prefix.text)}"]),
    )


def _confirmed(comparison: Comparison, prefix: Prefix, renamed: list[str]) -> bool:
    """Return whether the reference proves the prefix.

    Half of it fits only so, or every renamed key has its counterpart.
    """
    gained = len(comparison.after_prefix.fits) - len(comparison.before_prefix.fits)
    fits = set(comparison.after_prefix.fits)
    return 2 * gained >= len(comparison.reference.tensors) or all(prefix.change(key) in fits for key in renamed)
