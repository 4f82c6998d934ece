"""Draws the values of a slice as numbers in rows and columns; only what is near the screen is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.content import Content
from textual.events import Click, MouseScrollDown, MouseScrollUp, Resize
from textual.strip import Strip

from ckptdoctor.checkpoint.dtypes import DType
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.look.inspector import Number, Refused
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import plain, shape
from ckptdoctor.tui.background import Background, until_cancelled
from ckptdoctor.tui.keys import MOVING, key
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.slices import ElementIndex, Slice
from ckptdoctor.tui.models.values import text
from ckptdoctor.tui.widgets.line_view import fit
from ckptdoctor.tui.widgets.looks import Looks

_ACROSS = (1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, 64, 80, 100)  # numbers in a line, where lines wrap
_WHEEL = 3


@dataclass(frozen=True, slots=True)
class _Texts:
    """The numbers of some rows and columns of a slice, ready to be drawn: text and look."""

    of: Slice
    rows: range
    columns: range
    lines: list[list[tuple[str, str]]]
    widest: int

    def at(self, row: int, column: int) -> tuple[str, str] | None:
        """Return the text and look of one value; None where it has not been read."""
        if row not in self.rows or column not in self.columns:
            return None
        line = self.lines[row - self.rows.start]
        return line[column - self.columns.start] if column - self.columns.start < len(line) else None


class ValueGrid(Background, Looks, can_focus=True):
    """A cursor moves over the numbers; the border says which one it is on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *[each for each in MOVING if each.id not in ("first", "last")],
        key("left,h", "across(-1)", "left", "One column to the left"),
        key("right,l", "across(1)", "right", "One column to the right"),
        key("shift+left,H,ctrl+left", "leap(-1)", "page left", "One page to the left"),
        key("shift+right,L,ctrl+right", "leap(1)", "page right", "One page to the right"),
        key("home,0", "edge(-1)", "first column", "To the first column"),
        key("end,dollar_sign", "edge(1)", "last column", "To the last column"),
        key("g,ctrl+home", "first", "first", "To the first row"),
        key("G,ctrl+end", "last", "last", "To the last row"),
    ]

    def __init__(self, opened: OpenedCheckpoint, row: int, slice_: Slice, dtype: DType, id: str | None = None) -> None:
        super().__init__(id=id)
        self._opened, self._tensor = opened, opened.table.tensors[row]
        self._slice, self._dtype = slice_, dtype
        self._texts: _Texts | None = None
        self._refused = ""
        self._cell = 5  # cells that a number takes
        self._top = self._left = 0
        self.row = self.column = 0
        self._centred: tuple[int, int] | None = None  # what was gone to, until the cursor leaves it

    # what is shown

    def show(self, slice_: Slice, index: ElementIndex | None = None) -> None:
        """Show another slice, with the cursor on an element where one is named."""
        self._slice = replace(slice_, across=self._slice.across)
        self._fold()
        if index is not None:
            self.row, self.column = self._centred = self._slice.place(index)
        self._moved()

    @property
    def index(self) -> ElementIndex | None:
        """The element that the cursor is on."""
        return self._slice.index(self.row, self.column)

    @property
    def _label(self) -> int:
        """Cells of the numbers of the rows."""
        last = self._slice.height - 1 if self._slice.rows is not None else self._slice.count - 1
        return max(3, len(str(max(0, last)))) + 1

    @property
    def _across(self) -> int:
        """Columns that there is room for."""
        return max(1, (self.content_size.width - self._label) // (self._cell + 2))

    @property
    def _down(self) -> int:
        return max(1, self.content_size.height - 1)

    def on_resize(self, event: Resize) -> None:
        """Fold and read again for more or less room."""
        self._fold()
        self._moved()

    def _fold(self) -> None:
        """Make lines that wrap as long as there is room, and end them at round numbers."""
        if self._slice.rows is None:
            index = self.index
            fitting = [each for each in _ACROSS if each <= self._across]
            self._slice = replace(self._slice, across=fitting[-1])
            if index is not None:
                self.row, self.column = self._slice.place(index)

    def _moved(self) -> None:
        """Keep the cursor in the slice and on the screen, and read what is missing."""
        self.row = max(0, min(self.row, self._slice.height - 1))
        self.column = max(0, min(self.column, self._slice.width - 1))
        if self._centred == (self.row, self.column):
            self._top, self._left = self.row - self._down // 2, self.column - self._across // 2
        else:
            self._centred = None
        self._top = max(min(self._top, self.row), self.row - self._down + 1)
        self._left = max(min(self._left, self.column), self.column - self._across + 1)
        self._top = max(0, min(self._top, self._slice.height - self._down))
        self._left = max(0, min(self._left, self._slice.width - self._across))
        self._tell()
        self._read()
        self.refresh()

    def _tell(self) -> None:
        """Name in the border which slice this is, and the value under the cursor."""
        self.border_title = Content(f"values {self._slice}")
        index = self.index
        here = self._texts.at(self.row, self.column) if self._is_current() and self._texts is not None else None
        said = f"{shape(index)} = {here[0]}" if index is not None and here is not None else ""
        self.border_subtitle = Content(said)

    def _is_current(self) -> bool:
        return self._texts is not None and self._texts.of == self._slice

    def _read(self) -> None:
        """Read what is on the screen and a page around it, unless that is there."""
        slice_, height, width = self._slice, self._down, self._across
        rows = range(self._top, min(slice_.height, self._top + height))
        columns = range(self._left, min(slice_.width, self._left + width))
        if not rows or not columns or self.content_size.width < 2:
            return
        there = self._texts
        if there is not None and self._is_current() and _within(rows, there.rows) and _within(columns, there.columns):
            return
        rows = range(max(0, rows.start - height), min(slice_.height, rows.stop + height))
        columns = range(max(0, columns.start - width), min(slice_.width, columns.stop + width))

        def work() -> _Texts | Refused:
            return self._texts_of(slice_, rows, columns, Work(listener=until_cancelled()))

        self.compute(work, self._take, "values")

    def _texts_of(self, slice_: Slice, rows: range, columns: range, work: Work) -> _Texts | Refused:
        seen = self._opened.inspector.window(self._tensor, slice_.box(rows, columns), work)
        if isinstance(seen, Refused):
            return seen
        if slice_.rows is None:
            columns = range(slice_.width)
        drawn = [(text(each, self._dtype), _look(each)) for each in seen.values]
        lines = _in_lines(drawn, slice_, len(rows), len(columns))
        return _Texts(slice_, rows, columns, lines, max([len(each) for each, _ in drawn], default=1))

    def _take(self, found: _Texts | Refused) -> None:
        if isinstance(found, Refused):
            self._refused = escape(found.reason)
        else:
            self._refused, self._texts = "", found
            if found.widest > self._cell:  # only ever wider, so that columns stay where they are
                self._cell = min(found.widest, max(5, self.content_size.width - self._label - 2))
                self._fold()
                self._moved()
        self._tell()
        self.refresh()

    # drawing

    def render_line(self, y: int) -> Strip:
        """Return the numbers of the columns, or a row."""
        width = self.content_size.width
        if self._refused:
            return Strip([Segment(self._refused if not y else "", self.look("dim"))]).adjust_cell_length(width)
        segments = self._heading() if y == 0 else self._row(self._top + y - 1)
        return Strip(segments).adjust_cell_length(width, self.rich_style)

    def _columns(self) -> range:
        return range(self._left, min(self._slice.width, self._left + self._across))

    def _heading(self) -> list[Segment]:
        if not self._slice.height:
            return [Segment("no elements", self.look("dim"))]
        found = [Segment(" " * self._label, self.look("dim"))]
        for column in self._columns():
            name = "name" if column == self.column else "dim"
            sign = "+" if self._slice.rows is None else ""
            found.append(Segment("  " + fit(sign + plain(column), self._cell, right=True), self.look(name)))
        return found

    def _row(self, row: int) -> list[Segment]:
        if row >= self._slice.height:
            return []
        name = "name" if row == self.row else "dim"
        first = row if self._slice.rows is not None else row * self._slice.across
        found = [Segment(fit(plain(first), self._label - 1, right=True) + " ", self.look(name))]
        texts, gap = self._texts if self._is_current() else None, Segment("  ", self.rich_style)
        for column in self._columns():
            behind = self._slice.index(row, column) is None
            said, look = (texts.at(row, column) if texts is not None else None) or ("" if behind else "·", "dim")
            style = self.look(look)
            if (row, column) == (self.row, self.column):  # what is dim could not be read on the cursor's background
                style = self._cursor(self.look("plain") if look == "dim" else style)
            found.append(gap)
            found.append(Segment(fit(said, self._cell, right=True), style))
        return found

    def _cursor(self, style: Style) -> Style:
        if self.app.no_color:
            return style + Style(reverse=self.has_focus, underline=not self.has_focus)
        return style + Style(bgcolor=self.look("cursor").bgcolor, bold=self.has_focus)

    # keys and mouse

    def action_move(self, by: int) -> None:
        """Go up or down."""
        self.row += by
        self._moved()

    def action_page(self, by: int) -> None:
        """Go up or down by pages."""
        self._top += by * self._down
        self.action_move(by * self._down)

    def action_across(self, by: int) -> None:
        """Go to the left or right; where lines wrap, on to the next one."""
        self.column += by
        if self._slice.rows is None and not 0 <= self.column < self._slice.width:
            index = self.row * self._slice.across + self.column
            self.row, self.column = divmod(max(0, min(index, self._slice.count - 1)), self._slice.across)
        self._moved()

    def action_leap(self, by: int) -> None:
        """Go to the left or right by pages."""
        self._left += by * self._across
        self.column += by * self._across
        self._moved()

    def action_edge(self, by: int) -> None:
        """Go to the first or the last column."""
        self.column = 0 if by < 0 else self._slice.width - 1
        self._moved()

    def action_first(self) -> None:
        """Go to the first row."""
        self.row = 0
        self._moved()

    def action_last(self) -> None:
        """Go to the last row."""
        self.row = self._slice.height - 1
        self._moved()

    def on_focus(self) -> None:
        """Give the cursor its full colour."""
        self.refresh()

    def on_blur(self) -> None:
        """Let the cursor fade."""
        self.refresh()

    def on_click(self, event: Click) -> None:
        """Move the cursor to the value that was clicked."""
        offset = event.get_content_offset(self)
        if offset is not None and offset.y >= 1 and offset.x >= self._label:
            row, column = self._top + offset.y - 1, self._left + (offset.x - self._label) // (self._cell + 2)
            if self._slice.index(row, column) is not None:
                self.row, self.column = row, column
                self._moved()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Go down with the wheel."""
        event.stop()
        self._top += _WHEEL
        self.action_move(_WHEEL)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Go up with the wheel."""
        event.stop()
        self._top -= _WHEEL
        self.action_move(-_WHEEL)


def _within(inner: range, outer: range) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _in_lines(drawn: list[tuple[str, str]], slice_: Slice, height: int, width: int) -> list[list[tuple[str, str]]]:
    """Return values in C order as rows of the slice, whose rows may be the later dimension."""
    if slice_.rows is not None and slice_.columns is not None and slice_.rows > slice_.columns:
        return [drawn[at::height] for at in range(height)]
    return [drawn[at * width : (at + 1) * width] for at in range(height)]


def _look(value: Number) -> str:
    if value != value:
        return "error"
    if value == 0:
        return "dim"
    size = abs(value)
    return "alarm" if size == float("inf") else "plain"
