"""The rules that rename keys to the names of a target share one step of the chain as a problem with its fix."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.edits import Fix, Safety
from ckptdoctor.findings import Location
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.moves import Move
from ckptdoctor.rules.framework import Problem
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option, choice_of
from ckptdoctor.rules.kit.renames import rename_edits

_ORDER_ALONE = "Keys with the same shape are paired by their order on both sides, which proves nothing."


def moved_problems(comparison: Comparison, code: str, cause: str, doubt: str = "") -> Iterator[Problem]:
    """Yield a problem for each step of the chain that the rule ``code`` speaks for.

    ``doubt`` is said of unsure ones.
    """
    for index, move in enumerate(comparison.moves):
        if move.code == code and comparison.state_dict is not None:
            yield _problem(comparison, move, index, cause, doubt)


def _problem(comparison: Comparison, move: Move, index: int, cause: str, doubt: str) -> Problem:
    before = comparison.after_prefix
    old = [key for key in before.here if _name_before(comparison, key, index) in move.names]
    new = [move.names[_name_before(comparison, key, index)] for key in old]
    choice = choice_of(comparison, {before.here[key].key for key in old})
    fix, advice = (None, choice.advice) if choice is not None else _fix(comparison, move)
    return Problem(
        message=_message(comparison, move, len(old)),
        cause=cause if move.sure or not doubt else _ORDER_ALONE,
        torch_says=(wording.missing_line(new), wording.unexpected_line(old)),
        advice=advice or ("" if move.sure else doubt),
        keys=tuple([before.here[key].path for key in old]),
        location=Location(path=comparison.path),
        fix=fix,
        commands=() if choice is None else choice.commands,
    )


def _name_before(comparison: Comparison, key: str, index: int) -> str:
    """Return what a key is called before the move at ``index``, from its name after the prefix."""
    for move in comparison.moves[:index]:
        key = move.change(key)
    return key


def _message(comparison: Comparison, move: Move, renamed: int) -> str:
    total = len(comparison.reference.tensors)
    fit = f"{len(comparison.renamed.fits):,} of {wording.plural(total, 'key')} of {comparison.reference.source} fit"
    before = f"{len(comparison.after_prefix.fits):,} without"
    verb = "has" if renamed == 1 else "have"
    verb = verb if move.sure else "may have"
    return f"{wording.plural(renamed, 'key')} {verb} another name there ({move.pattern}); renamed, {fit} ({before})"


def _fix(comparison: Comparison, move: Move) -> tuple[Fix | None, str]:
    """Return all renames up to this one, and advice where two keys would get one name.

    There is none where one of them is a guess.
    """
    state_dict = comparison.state_dict
    assert state_dict is not None
    if not all(each.sure for each in comparison.moves[: comparison.moves.index(move) + 1]):
        return None, ""
    dropped = tuple([each.drops.path for each in comparison.name_fixes if each.drops is not None])
    edits, collision = rename_edits(state_dict, lambda key: comparison.final_name(key, move), dropped)
    if collision is not None:
        one, other, name = collision
        return None, f'No repair is offered: "{one}" and "{other}" would both become "{name}"; drop one first.'
    return Fix(f"rename {move.pattern}", edits, Safety.SAFE, auto_option(comparison)), ""
