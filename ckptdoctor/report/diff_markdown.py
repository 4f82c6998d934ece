"""A difference for a pull request: a sentence in bold, and tables."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import show_path
from ckptdoctor.differences import Difference, Side
from ckptdoctor.report.diff_groups import groups, rows
from ckptdoctor.report.diff_text import figures, stopped
from ckptdoctor.report.escape import escape
from ckptdoctor.report.markup import code, plain, table
from ckptdoctor.report.numbers import count, size


def render(found: Difference, every: bool = False) -> str:
    """The whole report; ``every`` names each tensor instead of patterns."""
    return "\n".join(_lines(found, every))


def _lines(found: Difference, every: bool) -> Iterator[str]:
    yield f"**{plain(escape(found.summary))}**"
    yield ""
    yield from table(("", "checkpoint", "format", "size"), [_side("A", found.a), _side("B", found.b)])
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


def _side(name: str, side: Side) -> tuple[str, ...]:
    place = f"{side.path} ({show_path(side.root)})" if side.root else side.path
    return name, code(escape(place)), plain(escape(side.checkpoint.format)), size(side.checkpoint.size)
