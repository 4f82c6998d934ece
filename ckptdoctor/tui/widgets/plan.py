"""Draws the plan of a repair: all names before and after it, however many lines that takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.events import Resize
from textual.strip import Strip

from ckptdoctor.tui.models.planned import DROPPED, PlanRow
from ckptdoctor.tui.widgets.line_view import LineView, broken, fit, taken

_BESIDE = 1  # cells between the text and where a scroll bar may be
_ARROW = "  →  "
_INDENT = "  "
_Pieces = list[tuple[str, str]]


class PlanView(LineView):
    """Lines to read: nothing can be done with one of them, so the cursor only shows while it is moved."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: Sequence[PlanRow] = ()
        self._lines: list[_Pieces] = []

    def show(self, rows: Sequence[PlanRow]) -> None:
        """Show another plan."""
        self.rows = rows
        self._put_in_lines()
        self.cursor = 0

    def count(self) -> int:
        """Return the number of lines, of which a row may take several."""
        return len(self._lines)

    def draw(self, number: int, width: int) -> _Pieces:
        """Return one of the lines that were made."""
        return self._lines[number]

    def render_line(self, y: int) -> Strip:
        """Return one line, with the cursor only while this has the focus."""
        number = y + self.scroll_offset.y
        if self.has_focus or number >= self.count():
            return super().render_line(y)
        return self._drawn(number, self.scrollable_content_region.width)

    def on_resize(self, event: Resize) -> None:
        """Make lines as long as there is room."""
        self._put_in_lines()
        super().on_resize(event)

    def _put_in_lines(self) -> None:
        width = room(self)
        if width <= 0:
            return
        rooms = _rooms(self.rows, width)
        self._lines = [line for row in self.rows for line in _lines(row, rooms.get(row.block, 0), width)]
        self.redraw()


def room(view: LineView) -> int:
    """Return the cells of a line, whether or not there is a scroll bar: it may come and go after lines were made."""
    return view.outer_size.width - view.styles.gutter.width - _BESIDE  # view.gutter counts a scroll bar that is there


def _rooms(rows: Sequence[PlanRow], width: int) -> dict[int, int]:
    """Return the room for old names in each block, so that arrows are below each other; 0 where none fits."""
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    for row in rows:
        if row.after:
            before[row.block] = max(before.get(row.block, 0), taken(row.text))
            after[row.block] = max(after.get(row.block, 0), taken(row.after) + taken(row.right) + 2)
    spare = width - len(_INDENT) - len(_ARROW)
    return {block: room if room + after[block] <= spare else 0 for block, room in before.items()}


def _lines(row: PlanRow, room: int, width: int) -> Iterator[_Pieces]:
    if row.look in ("plain", "error"):
        yield from ([(line, row.look)] for line in broken(row.text, width))
    elif row.look == "step":
        behind = taken(row.right)
        yield [(fit(row.text, width - behind), "level"), (row.right, "warning" if "unsafe" in row.right else "dim")]
    elif row.look == "note":
        yield from ([(_INDENT + line, "dim")] for line in broken(row.text, width - len(_INDENT)))
    elif row.look == DROPPED or not row.after:
        sign, look = ("− ", "warning") if row.look == DROPPED else ("", "plain")
        head, *rest = broken(row.text, width - 2 * len(_INDENT) - taken(row.right) - 1)
        first = [(f"{_INDENT}{sign}{head}", look)]
        yield from _ended([first, *[[(f"{_INDENT}{_INDENT}{text}", look)] for text in rest]], row.right, width)
    elif room:
        yield [
            (_INDENT + fit(row.text, room), "dim"),
            (_ARROW, "accent"),
            (fit(row.after, width - room - len(_INDENT + _ARROW) - taken(row.right)), "plain"),
            (row.right, "dim"),
        ]
    else:
        yield from ([(f"{_INDENT}  {line}", "dim")] for line in broken(row.text, width - 4))
        head, *rest = broken(row.after, width - len(_INDENT) - 3 - taken(row.right))
        first = [(f"{_INDENT}→ ", "accent"), (head, "plain")]
        yield from _ended([first, *[[(f"{_INDENT}  {line}", "plain")] for line in rest]], row.right, width)


def _ended(lines: list[_Pieces], right: str, width: int) -> Iterator[_Pieces]:
    """Yield the lines with a number at the end of the last one."""
    *first, last = lines
    yield from first
    *pieces, (text, look) = last
    before = sum([taken(piece) for piece, _ in pieces])
    yield [*pieces, (fit(text, width - before - taken(right)), look), (right, "dim")]
