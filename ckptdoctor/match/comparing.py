"""Compares a checkpoint with what a target expects, after each of the renames that bring its keys there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import ROOT, Checkpoint, KeyPath, StateDict, Tensor, show_path
from ckptdoctor.checkpoint.expectation import CoverageStep, Expected, Reference, is_extra_state
from ckptdoctor.checkpoint.weights import WEIGHTS, weights_among
from ckptdoctor.facts import names
from ckptdoctor.match.comparison import Alignment, Comparison, sort_keys
from ckptdoctor.match.moves import Move
from ckptdoctor.match.nested_parts import Parts, parts_for
from ckptdoctor.match.prefixes import best_prefix, cut_of, prefix_code
from ckptdoctor.match.published.families import family_of, layout
from ckptdoctor.match.wrappers import NameFix, carries, name_fixes
from ckptdoctor.noun import replace

if TYPE_CHECKING:
    from ckptdoctor.match.published.matching import LayoutConversion


def compare(checkpoint: Checkpoint, reference: Reference, root: KeyPath | None = None) -> Comparison:
    """Compare the weights of a checkpoint with a reference: of several state dicts the one that fits best.

    ``root`` says that the state dict was chosen by hand, and where; a Checkpoint with only the chosen ones will do.
    """
    parts = parts_for(checkpoint, reference) if root is None else None
    if parts is not None:
        return _compared(checkpoint, reference, None, root, parts)
    candidates = weights_among(
        [each for each in checkpoint.state_dicts if root is None or each.path[: len(root)] == root]
    )
    for role in WEIGHTS:
        compared = [_compared(checkpoint, reference, each, root) for each in candidates if each.role is role]
        if compared:
            best = max(compared, key=lambda each: len(each.renamed.fits))  # the first of equals
            equals = [
                each for each in compared if each is not best and len(each.renamed.fits) == len(best.renamed.fits)
            ]
            rivals = [each.state_dict for each in equals if each.state_dict is not None]
            return replace(best, rivals=tuple(rivals)) if best.renamed.fits else best
    return _compared(checkpoint, reference, None, root)


def _compared(
    checkpoint: Checkpoint,
    reference: Reference,
    state_dict: StateDict | None,
    root: KeyPath | None,
    parts: Parts | None = None,
) -> Comparison:
    wanted = reference.tensors
    here = {tensor.key: tensor for tensor in state_dict.tensors} if state_dict is not None else {}
    others = filter(is_extra_state, state_dict.others) if state_dict is not None else ()
    nested = state_dict is not None and root is None and state_dict.path not in (ROOT, reference.root)
    plain = now = sort_keys(here, reference, others)
    steps: list[CoverageStep] = []
    if parts is not None:
        by_path = {tensor.path: tensor for tensor in checkpoint.tensors}
        now = sort_keys({key: by_path[parts.path + place] for key, place in parts.tensors}, reference)
        steps.append(_step("put the parts together", "W312", now))
    done: list[NameFix] = []
    if nested and state_dict is not None:
        steps.append(_step(f"extract {show_path(state_dict.path)}", "W301", plain))
    for fix in _wanted_fixes(state_dict, reference):
        after = _renamed(now, reference, fix.change, fix.drops)
        if not fix.sure and len(after.fits) <= len(now.fits):
            continue
        now = after
        done.append(fix)
        steps.append(_step(fix.title, fix.code, now))
    before_prefix, target = now, reference
    open_ = now.covered < len(wanted)
    other = _published(now, checkpoint, reference) if open_ else None
    cut = cut_of(now.here, wanted) if open_ and other is None else None
    prefix = best_prefix(now.here, wanted, len(now.fits)) if open_ and cut is None and other is None else None
    if other is not None and not other.lacks:
        now = sort_keys(other.after(now.here), reference, now.others)
        steps.append(_step(f"from {other.way.one} to {other.way.other}", "N426", now))
    if prefix is not None:
        if not prefix.added and any(prefix.change(key) == key for key in now.here):
            # a part of the saved model is wanted: what lies outside is no other name of what is inside
            target = replace(reference, once=False)
        now = _renamed(now, target, prefix.change)
        steps.append(_step(f'{"add" if prefix.added else "strip"} "{prefix.text}"', prefix_code(prefix), now))
    after_prefix = now
    if cut is not None:
        moves: tuple[Move, ...] = (cut.back,) if cut.back is not None else ()
    elif other is not None:
        moves = ()
    else:
        moves = _moves(now, wanted) if _renames_help(now, wanted) else ()
    moves = certain(moves, now.here) if reference.certain else moves
    for move in moves:
        now = _renamed(now, target, move.change)
        steps.append(_step(move.pattern, move.code, now))
    return Comparison(
        checkpoint=checkpoint,
        reference=reference,
        state_dict=state_dict,
        nested=nested,
        rivals=(),
        plain=plain,
        before_prefix=before_prefix,
        after_prefix=after_prefix,
        renamed=now,
        name_fixes=tuple(done),
        prefix=prefix,
        moves=moves,
        steps=tuple(steps),
        cut=cut,
        conversion=other,
        parts=parts,
    )


def _published(now: Alignment, checkpoint: Checkpoint, reference: Reference) -> LayoutConversion | None:
    from ckptdoctor.match.published.heads import with_heads  # tables that a check without a target has no use for
    from ckptdoctor.match.published.matching import layout_conversion

    found = layout_conversion(now.here, reference)
    return None if found is None else with_heads(found, now.here, checkpoint, reference)


def _moves(now: Alignment, wanted: Mapping[str, Expected]) -> tuple[Move, ...]:
    from ckptdoctor.match.search import find_moves  # much code, which a check without a target has no use for

    return tuple(find_moves(now.here, wanted))


def certain(moves: tuple[Move, ...], here: Mapping[str, Tensor]) -> tuple[Move, ...]:
    """Return the moves without the guesses among them, and without what only a guess would make room for."""
    found: list[Move] = []
    keys = set(here)
    for move in moves:
        names = {old: new for old, new in move.names.items() if old in keys} if move.sure else {}
        while stay := {new for new in names.values() if new in keys and new not in names}:
            names = {old: new for old, new in names.items() if new not in stay}
        if names:
            found.append(replace(move, names=names))
            keys = {names.get(key, key) for key in keys}
    return tuple(found)


def _renames_help(now: Alignment, wanted: Mapping[str, Expected]) -> bool:
    """Return whether names are what keeps the rest from fitting.

    Another code base arranges values in another way, too.
    """
    return now.covered < len(wanted) and family_of(layout(now.here), layout(wanted)) is None


def _wanted_fixes(state_dict: StateDict | None, reference: Reference) -> list[NameFix]:
    if state_dict is None:
        return []
    found = []
    for fix in name_fixes(state_dict):
        keys = [tensor.key for tensor in state_dict.tensors if tensor is not fix.drops]
        if not carries(reference, fix.code) and names.renaming(keys, fix.change).collision is None:
            found.append(fix)
    return found


def _renamed(
    now: Alignment, reference: Reference, change: Callable[[str], str], drops: Tensor | None = None
) -> Alignment:
    here = {change(key): tensor for key, tensor in now.here.items() if tensor is not drops}
    return sort_keys(here, reference, map(change, now.others))


def _step(title: str, code: str, after: Alignment) -> CoverageStep:
    return CoverageStep(title, code, after.covered, after.parameters)
