"""A difference for people: one sentence, what is the same, what is not, and how far values are apart."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import show_path
from ckptdoctor.differences import Difference, Numbers, Side
from ckptdoctor.report.contents import heading
from ckptdoctor.report.diff_groups import Group, Row, groups, rows
from ckptdoctor.report.escape import escape
from ckptdoctor.report.interrupted import came_to
from ckptdoctor.report.numbers import plural
from ckptdoctor.report.paint import Paint
from ckptdoctor.report.wrapping import abridged, columns, wrapped
from ckptdoctor.wording import beyond

_MODULE = 36  # characters of a module in the table
_ODD = 8  # tensors with NaN on one side that are named


def render(found: Difference, paint: Paint | None = None, width: int | None = None, every: bool = False) -> str:
    """The whole report; ``every`` names each tensor instead of patterns."""
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
    root = f" · {escape(show_path(side.root))} in it" if side.root else ""
    lines = [f"{first}{root}", *more] if not more else [first, *more[:-1], f"{more[-1]}{root}"]
    yield f"{paint.strong(name)}  {lines[0]}"
    yield from (f"   {line}" for line in lines[1:])


def _listed(shown: list[Group], width: int | None) -> Iterator[str]:
    label = max(len(group.label) for group in shown)
    count = max(len(_count(group)) for group in shown)
    for group in shown:
        lead = f"  {group.label:<{label}}  {_count(group):>{count}}  "
        text = f"{group.text}  {group.remark}" if group.text and group.remark else group.text or group.remark
        hang = " " * min(len(lead), 26)
        yield from wrapped(text, width, lead, hang)


def _count(group: Group) -> str:
    return plural(group.count, "tensor") if group.count else ""


def _table(table: list[Row]) -> Iterator[str]:
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
    """The largest and the mean absolute difference, the relative L2 norm, and the cosine."""
    cosine = numbers.cosine
    return (
        f"{numbers.largest:.3g}",
        f"{numbers.mean:.3g}",
        f"{numbers.relative:.3g}" if numbers.relative == numbers.relative else "–",
        f"{cosine:.6f}" if cosine == cosine else "–",
    )


def _odd(found: Difference) -> Iterator[str]:
    """Values that are no numbers on one side only: no figure above counts them."""
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
    """Where Ctrl-C came before the end: how far it was, and what was known by then."""
    apart = [pair for pair in found.pairs if pair.values is not None and not pair.settled]
    known = f"The values of {plural(len(apart), 'tensor')} differ" if apart else "No values differ"
    far = came_to([found.interrupted] if found.interrupted is not None else [])
    return f"Interrupted: headers done, {far}. {known} so far."
