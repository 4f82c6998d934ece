"""Reports a difference to people: one sentence, what is the same, what is not, and how far values are apart.

The same in lines that other programs can filter, and in tables for a pull request.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import show_path
from ckptdoctor.differences import Difference, Numbers, Side
from ckptdoctor.rendering.contents import heading
from ckptdoctor.rendering.diff_groups import DiffGroup, DiffRow, groups, rows
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.interrupted import came_to
from ckptdoctor.rendering.markdown import code, plain, table
from ckptdoctor.rendering.numbers import count, plural, size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.wrapping import abridged, columns, wrapped
from ckptdoctor.wording import beyond, format_name

_MODULE = 36  # characters of a module in the table
_ODD = 8  # tensors with NaN on one side that are named


def render(found: Difference, paint: Paint | None = None, width: int | None = None, every: bool = False) -> str:
    """Return the whole report; ``every`` names each tensor instead of patterns."""
    return "\n".join(_lines(found, paint or Paint(), width, every))


def _lines(found: Difference, paint: Paint, width: int | None, every: bool) -> Iterator[str]:
    yield from _side("A", found.a, paint, width)
    yield from _side("B", found.b, paint, width)
    yield ""
    first, *more = wrapped(escape(found.summary), width, "", "  ")
    yield paint.strong(first)
    yield from (paint.strong(line) for line in more)
    shown = groups(found, every)
    if shown:
        yield ""
        yield from _listed(shown, width)
    table = rows(found, every)
    if table:
        yield ""
        yield from _table(table)
    yield from _odd(found)
    yield from _ranks(found)
    for note in found.notes:
        yield from wrapped(f"not examined · {escape(note)}", width, "", "  ")
    yield ""
    yield paint.dim(_end(found))


def _side(name: str, side: Side, paint: Paint, width: int | None) -> Iterator[str]:
    first, *more = heading(side.checkpoint, None if width is None else width - 3)
    root = f" · its part {escape(show_path(side.root))}" if side.root else ""
    lines = [f"{first}{root}", *more] if not more else [first, *more[:-1], f"{more[-1]}{root}"]
    yield f"{paint.strong(name)}  {lines[0]}"
    yield from (f"   {line}" for line in lines[1:])


def _listed(shown: list[DiffGroup], width: int | None) -> Iterator[str]:
    label = max(len(group.label) for group in shown)
    count = max(len(_count(group)) for group in shown)
    for group in shown:
        lead = f"  {group.label:<{label}}  {_count(group):>{count}}  "
        text = f"{group.text}  {group.remark}" if group.text and group.remark else group.text or group.remark
        hang = " " * min(len(lead), 26)
        yield from wrapped(text, width, lead, hang)


def _count(group: DiffGroup) -> str:
    return plural(group.count, "tensor") if group.count else ""


def _table(table: list[DiffRow]) -> Iterator[str]:
    head = ("", "changed", "max |Δ|", "mean |Δ|", "rel. L2", "cosine")
    body = [
        (
            abridged(escape(row.name), _MODULE),
            f"{row.changed:,} of {row.tensors:,}",
            *figures(row.numbers),
        )
        for row in table
    ]
    yield from (f"  {line}" for line in columns([head, *body], right=frozenset({1, 2, 3, 4, 5}), gap="  "))


def figures(numbers: Numbers) -> tuple[str, str, str, str]:
    """Return the largest and the mean absolute difference, the relative L2 norm, and the cosine."""
    cosine = numbers.cosine
    return (
        f"{numbers.largest:.3g}",
        f"{numbers.mean:.3g}",
        f"{numbers.relative:.3g}" if numbers.relative == numbers.relative else "–",
        f"{cosine:.6f}" if cosine == cosine else "–",
    )


def _odd(found: Difference) -> Iterator[str]:
    """Yield values that are NaN on one side only: no figure above counts them."""
    told = [
        f"  NaN in {escape(abridged(pair.name))}: {numbers.nan_a:,} in A, {numbers.nan_b:,} in B"
        for pair in found.pairs
        if pair.values is not None and (numbers := pair.values.numbers) is not None and numbers.odd
    ]
    yield from told[:_ODD]
    if len(told) > _ODD:
        yield beyond(len(told) - _ODD, "tensor", before="  … and in ", after=": --format json")


def _ranks(found: Difference) -> Iterator[str]:
    ranks = found.ranks
    if ranks is None or not ranks.low:
        return
    yield ""
    for rank in ranks.low:
        name = escape(abridged(rank.name))
        rest = f"{rank.rest:.2g} of the squared difference left over"
        yield f"  rank {rank.rank} of {min(rank.shape):,}  {name}  ({rest})"
    for name in ranks.full:
        yield f"  no low rank  {escape(abridged(name))}"


def _end(found: Difference) -> str:
    if found.interrupted is not None:
        return stopped(found)
    took = f"in {found.seconds:.2f} s"
    if not found.compared:
        return f"Compared headers {took}. Not compared: values (--values)."
    tolerances = f", tolerances rtol {found.rtol:g}, atol {found.atol:g}" if found.rtol or found.atol else ""
    return f"Compared headers and values{tolerances} {took}."


def stopped(found: Difference) -> str:
    """Return the state at Ctrl-C: how far it was, and what was known by then."""
    apart = [pair for pair in found.pairs if pair.values is not None and not pair.settled]
    known = f"The values of {plural(len(apart), 'tensor')} differ" if apart else "No values differ"
    far = came_to([found.interrupted] if found.interrupted is not None else [])
    return f"Interrupted: headers done, {far}. {known} so far."


def concise(found: Difference, every: bool = False) -> str:
    """Return the sentence, and what differs; ``every`` names each tensor instead of patterns."""
    return "\n".join(_concise_lines(found, every))


def _concise_lines(found: Difference, every: bool) -> Iterator[str]:
    lead = f"{escape(found.a.path)} {escape(found.b.path)}"
    yield f"{lead}: {escape(found.summary)}"
    for group in groups(found, every):
        if group.label != "same":
            count = f"{plural(group.count, 'tensor')}: " if group.count else ""
            yield f"{lead}: {group.label}: {count}{group.text}{f' [{group.remark}]' if group.remark else ''}"
    for row in rows(found, every):
        largest, mean, relative, cosine = figures(row.numbers)
        told = f"max {largest}, mean {mean}, relative L2 {relative}, cosine {cosine}"
        yield f"{lead}: values: {escape(row.name)}: {row.changed:,} of {row.tensors:,} changed, {told}"
    if found.interrupted is not None:
        yield f"{lead}: {stopped(found)}"


def markdown(found: Difference, every: bool = False) -> str:
    """Return the whole report; ``every`` names each tensor instead of patterns."""
    return "\n".join(_markdown_lines(found, every))


def _markdown_lines(found: Difference, every: bool) -> Iterator[str]:
    yield f"**{plain(escape(found.summary))}**"
    yield ""
    yield from table(("", "checkpoint", "format", "size"), [_side_row("A", found.a), _side_row("B", found.b)])
    shown = groups(found, every)
    if shown:
        yield ""
        cells = [(each.label, count(each.count) if each.count else "", code(each.text), each.remark) for each in shown]
        yield from table(("what", "tensors", "which", "how"), [(*cell[:3], plain(cell[3])) for cell in cells])
    measured = rows(found, every)
    if measured:
        yield ""
        body = [
            (code(escape(row.name)), f"{row.changed:,} of {row.tensors:,}", *figures(row.numbers)) for row in measured
        ]
        yield from table(("module", "changed", "max abs. Δ", "mean abs. Δ", "relative L2", "cosine"), body)
    if not found.compared:
        yield ""
        yield "Values were not compared." if found.interrupted is None else plain(stopped(found))


def _side_row(name: str, side: Side) -> tuple[str, ...]:
    place = f"{side.path} ({show_path(side.root)})" if side.root else side.path
    return name, code(escape(place)), plain(escape(format_name(side.checkpoint.format))), size(side.checkpoint.size)
