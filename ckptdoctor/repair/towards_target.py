"""Brings contents to a target, one step after another: what ``fix --auto`` adds to a draft.

Each step is planned again from the contents as the ones before it left them, so that what is shown is what is done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Source, Tensor, show_path
from ckptdoctor.checkpoint.expectation import Expected, Reference
from ckptdoctor.diagnose.findings import findings_of
from ckptdoctor.diagnose.fixes import fixes, independent, outside
from ckptdoctor.edits import Compute, Drop, Edit, Flatten, Safety, TakeRoot
from ckptdoctor.errors import RefusedError, UsageError
from ckptdoctor.match.comparing import compare
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.nested_parts import parts_for
from ckptdoctor.match.parametrized import orthogonals
from ckptdoctor.match.prefixes import prefix_code
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.match.shapes.fused import Fused
from ckptdoctor.match.shapes.projections import HEAD_BY_HEAD, Ranges, rows
from ckptdoctor.noun import noun, replace
from ckptdoctor.repair.draft import ROUNDS, Draft
from ckptdoctor.repair.finishing import Attempt
from ckptdoctor.repair.fits_target import (
    answered,
    one_choice,
    rearranged,
    require_fit,
    require_no_others,
    spare_parts,
)
from ckptdoctor.repair.name_map import UnfitError
from ckptdoctor.repair.request import EXPERT_LAYOUTS, FixRequest
from ckptdoctor.repair.steps_from_options import add_options
from ckptdoctor.repair.witness import copies, witnessed
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.kit.renames import rename_edits
from ckptdoctor.rules.naming.known_layout_family import conversion_title, layout_edits
from ckptdoctor.rules.registry import find_rule
from ckptdoctor.rules.shape.fused_qkv import one_after_another, projection_edits
from ckptdoctor.rules.shape.moe_stacked_experts import edits_for
from ckptdoctor.target.error_text import as_reference, read_error
from ckptdoctor.wording import and_more, plural

_NAMED = 3  # keys that a refusal names
_SAME = "same-bytes"  # why a step is taken that no rule asks for
_INSTEAD = "give the target with --model or --like instead"
_TURNED = (
    "{} {}, so {} may have its inputs first as well: it is square, and no shape shows whether it has to be "
    "transposed for {}.\n  no command can finish: bring them into one form in Python, and save the model "
    "again"
)
_INDEX = re.compile(r"\.\d+\.")


def with_target(request: FixRequest, checkpoint: Checkpoint) -> FixRequest:
    """Return the request with the reference that its error text and the checkpoint give together.

    Raises RefusedError where the text is cut short, or the shape of a missing key cannot be told: then nobody could
    say that the result fits. Raises UnreadableError or UsageError for a text without such an error.
    """
    if request.error is None:
        return request
    told = as_reference(read_error(request.error), checkpoint)
    if not told.complete:
        raise RefusedError(f"The error text is cut short, so not all keys are known: {_INSTEAD}.")
    if told.left_out:
        named = and_more(told.left_out, _NAMED)
        raise RefusedError(f"The error does not give the shape that the model expects for {named}: {_INSTEAD}.")
    return replace(request, reference=told.reference)


def bring_to_target(draft: Draft, source: Source, request: FixRequest, rules: tuple[Rule, ...]) -> None:
    """Fit the target, or raise the refusal with what would finish, each way of which is planned here."""
    original = draft.original

    def attempt(wanted: FixRequest) -> Attempt:
        tried = Draft(original, wanted.unsafe)
        try:
            add_options(tried, wanted)
            fit_to_reference(tried, source, wanted, rules)
        except (RefusedError, UsageError) as error:
            return Attempt(tried.checkpoint, tuple(tried.steps), False, error.message)
        return Attempt(tried.checkpoint, tuple(tried.steps), fits=True, lost=tuple(tried.lost))

    try:
        fit_to_reference(draft, source, request, rules)
    except UnfitError as error:
        raise answered(error, original, request, attempt) from None


def fit_to_reference(draft: Draft, source: Source, request: FixRequest, rules: tuple[Rule, ...]) -> None:
    """Add the steps that make the contents fit the target.

    Raises UsageError without a target, and RefusedError where they do not fit in the end: what is left, and why.
    """
    reference = request.reference
    if reference is None:
        raise UsageError("--auto needs a target: add --like OTHER, or --model MODULE:CLASS.")
    _put_together(draft, reference)
    chosen = one_choice(draft.checkpoint, reference, request, source)
    if chosen is not None:
        title = f"take {show_path(chosen)}, which has the same bytes as the others or the target"
        draft.add("W301", "nested-state-dict", title, Safety.SAFE, (TakeRoot(chosen),))
    spare = spare_parts(draft.checkpoint, reference, request, source)
    if spare:  # every byte was compared, so that nothing is lost
        title = f"leave out {plural(len(spare), 'key')} with the same bytes as others"
        draft.add("values", _SAME, title, Safety.CONFIRMED, (Drop(spare),), reference)
    heads = reference.heads if request.heads is None else request.heads
    asked, reference = reference, replace(reference, certain=True, heads=heads)
    careful = replace(request, unsafe=False)  # what loses nothing comes first
    for _ in range(ROUNDS):
        if not (
            _rename_towards(draft, reference)
            or _confirm(draft, careful, reference, rules)
            or _leave_copies_out(draft, source, reference)
            or (request.unsafe and _confirm(draft, request, reference, rules))
            or _arrange_attention(draft, request, reference)
            or _arrange_experts(draft, request, reference)
            or _compute_orthogonal(draft, request, reference)
            or _go_by_values(draft, source, reference)
        ):
            break
    require_fit(draft.checkpoint, replace(asked, heads=heads))
    require_no_others(draft.checkpoint, reference)


def _put_together(draft: Draft, reference: Reference) -> None:
    """Make one flat state dict of the parts of the target, where they are in dicts of their own."""
    parts = parts_for(draft.checkpoint, reference)
    if parts is not None:
        title = "put the parts of the model together, by the names along the path"
        edits: tuple[Edit, ...] = (Flatten(parts.path, parts.tensors),)
        if parts.path:
            edits = (TakeRoot(parts.path), Flatten((), parts.tensors))
        draft.add("W312", "parts-apart", title, Safety.CONFIRMED, edits, reference)


@noun
class _Link:
    """One step of the chain: the rule that it fixes, what it does in a few words, and its edits."""

    code: str
    title: str
    edits: tuple[Edit, ...]

    @property
    def name(self) -> str:
        """What the rule is called."""
        rule = find_rule(self.code)
        return rule.name if rule is not None else ""


def _rename_towards(draft: Draft, reference: Reference) -> bool:
    """Add the next step of the chain; whether there was one."""
    link = _next_link(draft.checkpoint, reference)
    if link is None:
        return False
    draft.add(link.code, link.name, link.title, Safety.SAFE, link.edits, reference)
    return True


def _next_link(checkpoint: Checkpoint, reference: Reference) -> _Link | None:
    """Return the next step towards the reference, or None when no step is left, or more than one place could be meant.

    A rename that is only a guess is not a step.
    """
    reference = replace(reference, certain=True)
    comparison = compare(checkpoint, reference)
    if comparison.state_dict is None or comparison.rivals or comparison.uncovered:
        return None
    if comparison.nested:
        path = comparison.path
        return _Link("W301", f"extract {show_path(path)}", (TakeRoot(path),))
    return _rename(comparison) or _conversion(comparison) or _prefix(comparison) or _move(comparison)


def _rename(comparison: Comparison) -> _Link | None:
    for fix in comparison.name_fixes[:1]:
        dropped = () if fix.drops is None else (fix.drops.path,)
        return _link(comparison, fix.code, fix.title, fix.change, dropped)
    return None


def _conversion(comparison: Comparison) -> _Link | None:
    edits = layout_edits(comparison)
    return (
        _Link("N426", conversion_title(comparison.conversion), edits)
        if edits and comparison.conversion is not None
        else None
    )


def _prefix(comparison: Comparison) -> _Link | None:
    prefix = comparison.prefix
    if prefix is None:
        return None
    title = f'{"add" if prefix.added else "strip"} "{prefix.text}"'
    return _link(comparison, prefix_code(prefix), title, prefix.change)


def _move(comparison: Comparison) -> _Link | None:
    for move in comparison.moves[:1]:
        return _link(comparison, move.code, f"rename {move.pattern}", move.change)
    return None


def _link(
    comparison: Comparison,
    code: str,
    title: str,
    change: Callable[[str], str],
    dropped: tuple[KeyPath, ...] = (),
) -> _Link | None:
    assert comparison.state_dict is not None
    edits, _ = rename_edits(comparison.state_dict, change, dropped)
    return _Link(code, title, edits) if edits else None


def _confirm(draft: Draft, request: FixRequest, reference: Reference, rules: tuple[Rule, ...]) -> bool:
    """Add fixes that are safe, or that the reference confirms; whether there were any."""
    found = findings_of(draft.checkpoint, rules, reference)
    wanted = [each for each in fixes(found, request.unsafe, confirmed=True) if not outside(each[1].edits)]
    for finding, fix in independent(wanted):
        draft.add(finding.code, finding.name, fix.title, fix.safety, fix.edits, reference)
    return bool(wanted)


def _arrange_attention(draft: Draft, request: FixRequest, reference: Reference) -> bool:
    """Split or fuse every projection of attention in the layout that was stated; whether there were any.

    ``heads`` is the number of attention heads; the layouts that go head by head need it. Raises UsageError without it,
    and RefusedError where the numbers do not divide.
    """
    layout = request.qkv_layout
    if layout is None:
        return False
    comparison = compare(draft.checkpoint, reference)
    for each in shapes(comparison).qkv:
        _require_rows(comparison, each)
    edits = projection_edits(
        comparison, [(each, _ranges(each, layout, request.heads)) for each in shapes(comparison).qkv]
    )
    draft.add("S507", "fused-qkv", f"queries, keys and values as {layout}", Safety.UNSAFE, edits, reference)
    return bool(edits)


def _require_rows(comparison: Comparison, found: Fused) -> None:
    """Refuse to turn square parts of a matrix with its inputs first where nothing shows that they have them last.

    No shape of theirs tells; that of a layer in the same block does which is not square, and has a bias for each of its
    outputs. Where there is only a square one, it would have to be turned as well, or none of them.
    """
    side: Mapping[str, Tensor | Expected] = comparison.reference.tensors if found.here else comparison.renamed.here
    block = next((found.parts[0][: each.end()] for each in reversed(list(_INDEX.finditer(found.parts[0])))), "")
    if found.axis == 0 or not block or any(len(set(shape)) > 1 for shape in found.part_shapes):
        return
    squares = []
    for key, tensor in side.items():
        if not (key.startswith(block) and key.endswith(".weight") and len(tensor.shape) == 2) or key in found.parts:
            continue
        bias = side.get(f"{key.removesuffix('weight')}bias")
        if len(set(tensor.shape)) == 1:
            squares.append(key)
        elif bias is not None and bias.shape == tensor.shape[1:]:
            raise RefusedError(_TURNED.format(key, "has its inputs first, says its bias", found.parts[0], found.key))
        elif bias is not None and bias.shape == tensor.shape[:1]:
            return
    if squares:
        raise RefusedError(_TURNED.format(squares[0], "is square", found.parts[0], found.key))


def _ranges(found: Fused, layout: str, heads: int | None) -> dict[str, Ranges]:
    queries, keys = found.part_shapes[0][0], found.part_shapes[1][0]
    if heads is None:
        if layout in HEAD_BY_HEAD:
            raise UsageError(f"--qkv-layout {layout} goes head by head: specify the number of heads with --heads N.")
        return one_after_another(found, layout)
    if queries % heads or keys % (queries // heads):
        raise RefusedError(f"{heads:,} heads do not divide the {plural(queries, 'row')} of queries of {found.key}.")
    return rows(layout, heads, keys // (queries // heads), queries // heads)


def _arrange_experts(draft: Draft, request: FixRequest, reference: Reference) -> bool:
    """Stack or unbind experts whose slices have the stated layout; return whether there were any."""
    if request.expert_layout is None:
        return False
    edits = edits_for(compare(draft.checkpoint, reference), request.expert_layout == EXPERT_LAYOUTS[1])
    draft.add("S509", "moe-stacked-experts", f"experts as {request.expert_layout}", Safety.CONFIRMED, edits, reference)
    return bool(edits)


def _compute_orthogonal(draft: Draft, request: FixRequest, reference: Reference) -> bool:
    """Compute the weights under a parametrization by the map that was stated; whether there were any."""
    if request.orthogonal_map is None:
        return False
    comparison, form = compare(draft.checkpoint, reference), request.orthogonal_map
    here, edits = comparison.renamed.here, []
    for key, parts in orthogonals(comparison):
        paths = tuple([here[part].path for part in parts])
        edits.append(Compute(paths, key, form, here[parts[0]].dtype.name, comparison.path))
    if edits:
        title = f"compute {plural(len(edits), 'orthogonal weight')} by {form}"
        draft.add("N430", "parametrized-weight", title, Safety.UNSAFE, tuple(edits), reference)
    return bool(edits)


def _go_by_values(draft: Draft, source: Source, reference: Reference) -> bool:
    """Rename what names do not tell, and what has the very bytes of one tensor of the target; whether there was any."""
    if reference.beside is None:
        return False
    comparison = compare(draft.checkpoint, reference)
    if rearranged(comparison):  # equal bytes elsewhere say nothing of those that another code base arranges
        return False
    pairs = witnessed(source, comparison)
    if comparison.state_dict is None or all(old == new for old, new in pairs.items()):
        return False
    edits, _ = rename_edits(comparison.state_dict, lambda key: pairs.get(key, key))
    if edits:
        draft.add("values", _SAME, "rename tensors with the same bytes in the target", Safety.SAFE, edits, reference)
    return bool(edits)


def _leave_copies_out(draft: Draft, source: Source, reference: Reference) -> bool:
    """Leave out what the target does not have, where all else fits and what fits has its very bytes; whether it did."""
    now = compare(draft.checkpoint, reference).renamed
    if now.missing or now.mismatched or not now.unexpected:
        return False
    found = copies(source, {key: now.here[key] for key in now.unexpected}, {key: now.here[key] for key in now.fits})
    if found:
        title = f"leave out {plural(len(found), 'key')} with the same bytes as others"
        edits = (Drop(tuple([each.path for each in found])),)
        draft.add("values", _SAME, title, Safety.CONFIRMED, edits, reference)
    return bool(found)
