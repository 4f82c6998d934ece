"""The chain of repairs that brings a checkpoint to a target: ``fix --auto``, one step after another.

Each step is planned anew from the contents as the ones before it left them, so that what is shown is what is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ckptdoctor.checkpoint import Checkpoint, KeyPath, show_path
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.edits import Edit, TakeRoot
from ckptdoctor.match.comparing import compare
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.prefixes import prefix_code
from ckptdoctor.noun import noun
from ckptdoctor.rules.kit.layout_edits import conversion_title, layout_edits
from ckptdoctor.rules.kit.renames import rename_edits
from ckptdoctor.rules.registry import find_rule


@noun
class Link:
    """One step of the chain: the rule that it fixes, what it does in a few words, and its edits."""

    code: str
    title: str
    edits: tuple[Edit, ...]

    @property
    def name(self) -> str:
        """What the rule is called."""
        rule = find_rule(self.code)
        return rule.name if rule is not None else ""


def next_link(checkpoint: Checkpoint, reference: Reference) -> Link | None:
    """The next step towards the reference; None when no step is left, or more than one place could be meant.

    A rename that is only a guess is no step.
    """
    reference = replace(reference, certain=True)
    comparison = compare(checkpoint, reference)
    if comparison.state_dict is None or comparison.rivals or comparison.uncovered:
        return None
    if comparison.nested:
        path = comparison.path
        return Link("W301", f"take {show_path(path)} out of the rest", (TakeRoot(path),))
    return _rename(comparison) or _conversion(comparison) or _prefix(comparison) or _move(comparison)


def _rename(comparison: Comparison) -> Link | None:
    for fix in comparison.name_fixes[:1]:
        dropped = () if fix.drops is None else (fix.drops.path,)
        return _link(comparison, fix.code, fix.title, fix.change, dropped)
    return None


def _conversion(comparison: Comparison) -> Link | None:
    edits = layout_edits(comparison)
    return (
        Link("N426", conversion_title(comparison.conversion), edits)
        if edits and comparison.conversion is not None
        else None
    )


def _prefix(comparison: Comparison) -> Link | None:
    prefix = comparison.prefix
    if prefix is None:
        return None
    title = f'{"add" if prefix.added else "strip"} "{prefix.text}"'
    return _link(comparison, prefix_code(prefix), title, prefix.change)


def _move(comparison: Comparison) -> Link | None:
    for move in comparison.moves[:1]:
        return _link(comparison, move.code, f"rename {move.pattern}", move.change)
    return None


def _link(
    comparison: Comparison,
    code: str,
    title: str,
    change: Callable[[str], str],
    dropped: tuple[KeyPath, ...] = (),
) -> Link | None:
    assert comparison.state_dict is not None
    edits, _ = rename_edits(comparison.state_dict, change, dropped)
    return Link(code, title, edits) if edits else None
