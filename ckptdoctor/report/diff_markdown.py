"""A difference for a pull request: a sentence in bold, and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import show_path
from ckptdoctor.differences import Difference, Side
from ckptdoctor.report.diff_groups import groups, rows
from ckptdoctor.report.diff_text import figures
from ckptdoctor.report.escape import escape
from ckptdoctor.report.numbers import count, size


def render(found: Difference, every: bool = False) -> str:
    """The whole report; ``every`` names each tensor instead of patterns."""
    return "\n".join(_lines(found, every))


def _lines(found: Difference, every: bool) -> Iterator[str]:
    yield f"**{_plain(escape(found.summary))}**"
    yield ""
    yield from _table(("", "checkpoint", "format", "size"), [_side("A", found.a), _side("B", found.b)])
    shown = groups(found, every)
    if shown:
        yield ""
        cells = [(each.label, count(each.count) if each.count else "", _code(each.text), each.remark) for each in shown]
        yield from _table(("what", "tensors", "which", "how"), [(*cell[:3], _plain(cell[3])) for cell in cells])
    table = rows(found, every)
    if table:
        yield ""
        body = [
            (_code(escape(row.name)), f"{row.changed:,} of {row.tensors:,}", *figures(row.numbers)) for row in table
        ]
        yield from _table(("module", "changed", "max abs. Δ", "mean abs. Δ", "relative L2", "cosine"), body)
    if not found.compared:
        yield ""
        yield "Values were not compared."


def _side(name: str, side: Side) -> tuple[str, ...]:
    place = f"{side.path} ({show_path(side.root)})" if side.root else side.path
    return name, _code(escape(place)), _plain(escape(side.checkpoint.format)), size(side.checkpoint.size)


def _table(head: tuple[str, ...], body: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(cells)} |" for cells in body)


def _code(text: str) -> str:
    """Text in backticks that cannot leave them, nor its cell."""
    return f"`{text.replace('`', chr(0x2019))}`".replace("|", r"\|") if text else ""


def _plain(text: str) -> str:
    """Text in which no sign means anything to Markdown or HTML."""
    for sign in ("\\", "`", "*", "_", "|", "[", "]", "#"):
        text = text.replace(sign, f"\\{sign}")
    return text.replace("<", "&lt;").replace(">", "&gt;")
