"""Finds what would finish a repair that was refused: commands that were tried, except for the writing.

Each is planned as it would be carried out, from headers alone, and named only if it makes everything fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.edits import Drop, Safety
from ckptdoctor.edits.computing import ORTHOGONAL
from ckptdoctor.edits.fix import Step
from ckptdoctor.match.comparing import compare
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.parametrized import orthogonals, parametrized
from ckptdoctor.match.published.families import family_of, layout
from ckptdoctor.match.published.table import QUERIES
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.match.shapes.fused import Fused
from ckptdoctor.match.shapes.projections import HEAD_BY_HEAD, HEAD_SIZES, QKV_LAYOUTS
from ckptdoctor.noun import noun, replace
from ckptdoctor.repair.draft_map import drafted
from ckptdoctor.repair.name_map import NameMap, resolved
from ckptdoctor.repair.request import EXPERT_LAYOUTS, FixRequest, command_line, draft_path
from ckptdoctor.wording import and_more, beyond, plural

_SHOWN = 5  # names that a sentence lists
_NUMBERS = 3  # numbers of heads that are offered


@noun
class Attempt:
    """What came of planning a request: the contents and the steps that lead there; whether the target would load it.

    ``why`` is the sentence that says what does not fit. ``lost`` are the weights that the steps leave out though they
    are nowhere else in the file: no command is printed that does so.
    """

    checkpoint: Checkpoint
    steps: tuple[Step, ...]
    fits: bool
    why: str = ""
    lost: tuple[str, ...] = ()


Try = Callable[[FixRequest], Attempt]


@noun
class Ways:
    """Sentences with complete commands, one of which finishes; none where nothing does. ``draft`` is the draft map."""

    lines: tuple[str, ...] = ()
    draft: NameMap | None = None


def ways(original: Checkpoint, request: FixRequest, attempt: Try) -> Ways:
    """Return the ways that would finish the refused ``request``."""
    told: tuple[str, ...] = ()
    if request.write_map is None:
        told, finishes = _losing(request, attempt)
        lines = told if finishes else tuple(_arranging(request, attempt))
        lines = lines or tuple(_mapped(request, attempt))
        if lines:
            return Ways(lines)
    found = _drafting(original, request, attempt)
    if told and not found.lines:
        return Ways((*told, "  no command that keeps it can finish: the target has no such key"))
    return replace(found, lines=(*told, *found.lines))


def _drafting(original: Checkpoint, request: FixRequest, attempt: Try) -> Ways:
    """Return a draft map of what is certain, with a mark for each other key."""
    assert request.reference is not None
    careful = attempt(replace(request, unsafe=False))
    comparison = compare(careful.checkpoint, request.reference)
    if comparison.nested or family_of(layout(comparison.plain.here), layout(request.reference.tensors)) is not None:
        return Ways()
    if parametrized(comparison):  # no name makes a weight of what it is computed of
        return Ways()
    draft = drafted(original, careful.checkpoint, careful.steps, request.reference)
    return _confirming(request, attempt, draft) if draft.marks else Ways()


def _losing(request: FixRequest, attempt: Try) -> tuple[tuple[str, ...], bool]:
    """Return what --unsafe-fixes does besides, by name; and whether its command may be printed: it loses no weight."""
    if request.unsafe:
        return (), False
    wanted = replace(request, unsafe=True)
    found = attempt(wanted)
    if not found.fits:
        return (), False
    if found.lost:
        gone = [key for step in found.steps if step.safety is Safety.UNSAFE for key in _gone([step])]
        those = "" if set(gone) == set(found.lost) else f" of {_listed(found.lost)}"
        return (f"  --unsafe-fixes would also {_losses(found.steps)}: this file has no other copy{those}",), False
    return (
        f"  to finish with --unsafe-fixes, which would also {_losses(found.steps)}:",
        f"    {command_line(wanted)}",
    ), True


def _losses(steps: Sequence[Step]) -> str:
    """Return what steps that change or drop something do."""
    titles = [step.title for step in steps if step.safety.value == "unsafe"]
    gone = _gone(steps)
    said = ", ".join(dict.fromkeys(titles)) or "change values"
    if not gone:
        return said
    return f"{said} ({_listed(gone)})"


def _gone(steps: Sequence[Step]) -> list[str]:
    return [str(path[-1]) for step in steps for edit in step.edits if isinstance(edit, Drop) for path in edit.paths]


def _listed(names: Sequence[str]) -> str:
    return and_more(names, _SHOWN)


def _arranging(request: FixRequest, attempt: Try) -> Iterator[str]:
    """Yield the layouts that experts and fused projections may have: only their code base shows which one it is."""
    if request.reference is None:
        return
    known = shapes(compare(attempt(replace(request, unsafe=False)).checkpoint, request.reference))
    if known.experts and request.expert_layout is None:
        slices = [replace(request, expert_layout=each) for each in EXPERT_LAYOUTS]
        told = [each for each in slices if attempt(each).fits]
        if told:
            yield (
                "  to finish, specify whether slices of experts are outputs × inputs or transposed, which no "
                "shape shows:"
            )
            yield from (f"    {command_line(each)}" for each in told)
    found = known.qkv if request.qkv_layout is None else ()
    if not found:
        return
    rows = []
    for wanted in _layouts(request, found):
        if attempt(wanted).fits:
            rows.append(wanted)
        elif not request.unsafe:
            losing = attempt(replace(wanted, unsafe=True))
            rows += [replace(wanted, unsafe=True)] if losing.fits and not losing.lost else []
    if rows:
        yield "  to finish, specify the layout of queries, keys and values in it, which no shape shows:"
        yield from (f"    {command_line(each)}" for each in rows)


def _mapped(request: FixRequest, attempt: Try) -> Iterator[str]:
    """Yield the maps by which orthogonal weights may be computed.

    Which one it was, only the code that trained it tells.
    """
    if request.orthogonal_map is not None or request.reference is None:
        return
    if not orthogonals(compare(attempt(replace(request, unsafe=False)).checkpoint, request.reference)):
        return
    asked = [replace(request, orthogonal_map=each, auto=True) for each in ORTHOGONAL]
    rows = [command_line(each) for each in asked if attempt(each).fits]
    if rows:
        yield (
            "  to finish, if it is torch.nn.utils.parametrizations.orthogonal, specify its map, which no file records:"
        )
        yield from (f"    {row}" for row in rows)


def with_heads(request: FixRequest, attempt: Try, comparison: Comparison) -> list[str]:
    """Return the numbers of heads with which a published layout could be converted.

    Which it is, only a config tells.
    """
    found = comparison.conversion
    if found is None or request.heads is not None:
        return []
    queries = [comparison.before_prefix.here[piece.old[0]].shape[0] for piece in found.rotary if piece.how == QUERIES]
    sizes = [size for size in HEAD_SIZES if all(rows % size == 0 and rows > size for rows in queries)]
    tried = [replace(request, heads=queries[0] // size) for size in sizes] if queries else []
    rows = [command_line(each) for each in tried if attempt(each).fits][:_NUMBERS]
    said = "  to finish, specify the number of heads, which its config.json or params.json has (n_heads):"
    return [said, *[f"    {row}" for row in rows]] if rows else []


def _layouts(request: FixRequest, found: Sequence[Fused]) -> Iterator[FixRequest]:
    for name in QKV_LAYOUTS:
        if name not in HEAD_BY_HEAD:
            yield replace(request, qkv_layout=name, auto=True)
        else:
            for heads in _heads(found):
                yield replace(request, qkv_layout=name, heads=heads, auto=True)


def _heads(found: Sequence[Fused]) -> list[int]:
    """Return numbers of heads that the rows of queries can have, the likeliest first."""
    rows = found[0].part_shapes[0][0]
    return [rows // size for size in HEAD_SIZES if rows % size == 0 and rows > size][:_NUMBERS]


def _confirming(request: FixRequest, attempt: Try, draft: NameMap) -> Ways:
    """Return a draft map that is written, confirmed and applied, where it would make everything fit."""
    path = request.write_map or draft_path(request.path)
    bare = replace(
        request,
        root=None, drop=(), keep=(), slim=False, strip_module=False, strip_prefixes=(), renames=(), add_prefix=None,
        write_map=None, name_map=replace(resolved(draft), file=path),
    )  # fmt: skip
    applied = next((each for each in _variants(bare) if (came := attempt(each)).fits and not came.lost), None)
    if applied is None:
        return Ways()
    number = plural(len(draft.marks), "pair")
    if request.write_map is not None:
        told = f"  {path} is a draft: it marks {number} as uncertain. Replace each mark, the whole "
        lines = [
            f'{told}{{"to": …, "uncertain": …}}, with the right name (or null, to leave the tensor out); then:',
            f"    {command_line(applied)}",
        ]
        return Ways(tuple(lines), draft)
    lines = [
        f"  to finish, write a draft map, confirm the {number} that it marks, and apply it:",
        f"    {command_line(replace(request, write_map=path))}",
        f"    {command_line(applied)}",
    ]
    return Ways(tuple(lines), draft)


def _variants(request: FixRequest) -> Iterator[FixRequest]:
    """Yield the request, and with what else it may need."""
    yield replace(request, unsafe=False)
    yield replace(request, unsafe=True)
    if request.qkv_layout is None:
        yield replace(request, qkv_layout=QKV_LAYOUTS[0])


def without_an_answer(reference: Reference, missing: Sequence[str]) -> str:
    """Return the sentence for a file that nothing makes fit."""
    if not missing:
        return "  no command can finish: the target has no key for what is left over or has a different shape"
    first = missing[0]
    more = beyond(len(missing) - 1)
    shape = list(reference.tensors[first].shape) if first in reference.tensors else ""
    return f"  no command can finish: nothing in this file can be identified as {first} {shape}{more}"
