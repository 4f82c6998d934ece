"""Lists all tensors, one a line, in the order of any column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import BindingType

from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.filters.table import Rows
from ckptdoctor.rendering.escape import escape
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.messages import ItemActivated, ItemSelected, OrderChanged
from ckptdoctor.tui.models.lines import SortColumn, next_column, ordered
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.widgets import columns
from ckptdoctor.tui.widgets.line_view import LineView, marked

_NAME = 36  # cells that names have at least, before there are columns beside them


class ListView(LineView):
    """A line is a row of the table."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "activate", "open", "Show the tensor", show=True),
        key("o", "order", "order", "Sort by the next column"),
        key("O", "backwards", "backwards", "Reverse the order"),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.opened: OpenedCheckpoint | None = None
        self.rows: Rows = range(0)
        self.column = SortColumn.PLACE
        self.turned = False
        self._chosen: Rows = range(0)

    def show(self, opened: OpenedCheckpoint) -> None:
        """Show the tensors of a checkpoint."""
        self.opened = opened
        self.narrow(None)

    def count(self) -> int:
        """Return the number of tensors that the filter lets through."""
        return len(self.rows)

    @property
    def order_in_words(self) -> str:
        """The order of the lines, in words."""
        if self.column is SortColumn.PLACE:
            return "last of the file first" if self.turned else self.column.value
        return f"by {self.column.value}{', backwards' if self.turned else ''}"

    def draw(self, number: int, width: int) -> Iterator[tuple[str, str]]:
        """Name and columns."""
        assert self.opened is not None
        row = self.rows[number]
        shown, left = columns.chosen(self.opened, width, _NAME)
        tied = columns.marks(self.opened, row)
        name = escape(self.opened.table.name(row))
        lent, pieces = columns.lent(columns.of_tensor(self.opened, row, shown), cell_len(name + tied) - left + 1, width)
        yield " " + marked(name, tied, left - 1 + lent), "plain"
        yield from pieces

    def selected(self, number: int) -> None:
        """Tell what the cursor is on."""
        if number < self.count():
            self.post_message(ItemSelected(self.rows[number]))

    def activated(self, number: int) -> None:
        """Show more of the tensor."""
        self.post_message(ItemActivated(self.rows[number]))

    def action_order(self) -> None:
        """Sort by the next column."""
        self.column, self.turned = next_column(self.column, bool(self.opened and self.opened.values)), False
        self._sort()

    def action_backwards(self) -> None:
        """Turn the order round."""
        self.turned = not self.turned
        self._sort()

    def narrow(self, rows: Rows | None) -> None:
        """Show only these tensors (None: all)."""
        if self.opened is not None:
            self._chosen = range(len(self.opened.table)) if rows is None else rows
            self._sort()

    def reveal(self, path: KeyPath) -> None:
        """Go to the tensor at a key path."""
        opened, rows = self.opened, self.rows
        if opened is not None:
            self.compute(lambda: _place(opened, rows, path), self._go, "place", len(rows))

    def _go(self, number: int | None) -> None:
        if number is not None:
            self.go_to_line(number)

    def _sort(self) -> None:
        opened, rows, column, turned = self.opened, self._chosen, self.column, self.turned
        if opened is not None:
            self.compute(
                lambda: ordered(opened.table, rows, column, turned, opened.values_of), self._sorted, "sort", len(rows)
            )

    def _sorted(self, rows: Rows) -> None:
        self.rows = rows
        self.redraw()
        self.cursor = 0
        self.post_message(OrderChanged(self.order_in_words))


def _place(opened: OpenedCheckpoint, rows: Rows, path: KeyPath) -> int | None:
    row = opened.table.row_of.get(path)
    return rows.index(row) if row is not None and row in rows else None
