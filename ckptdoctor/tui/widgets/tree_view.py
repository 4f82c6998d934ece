"""Draws the tree of modules and contents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import BindingType

from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.filters.table import Rows
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import plural
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.messages import ItemActivated, ItemSelected, OrderChanged
from ckptdoctor.tui.models.facts import said
from ckptdoctor.tui.models.lines import TreeLine, Visible
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.tree import TreeBranch, TreeItem, TreeOrder, TreeValue, ValuesOf
from ckptdoctor.tui.widgets import columns
from ckptdoctor.tui.widgets.line_view import LineView, fit, fit_middle, marked
from ckptdoctor.wording import and_more

_NAMED = 3  # blocks of a fold that are named with it
_OPENED = 400  # lines that * opens at once, and a filter
_NAME = 20  # cells that names have at least, before there are columns beside them
_INDENT = 2
_DEEPEST = 24  # cells of indent at most, so that names have room at any depth


class TreeView(LineView):
    """Levels that open and close. Everything that takes long for many tensors is prepared in a thread."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("right,l", "open", "unfold", "Open the level, or go to its first line", display="→"),
        key("left,h", "close", "fold", "Close the level, or go to the one above", display="←"),
        key("enter", "activate", "open", "Open or close a level; show a tensor", show=True),
        key("space", "toggle_level", "open or close", "Open or close the level"),
        key("asterisk", "open_all", "open all", f"Expand all below, up to {_OPENED} rows", display="*"),
        key("o", "order", "order", "Order: natural, as in the file, largest first, or by values once read"),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.opened: OpenedCheckpoint | None = None
        self.lines: Visible | None = None

    def show(self, opened: OpenedCheckpoint) -> None:
        """Show the contents of a checkpoint."""
        self.opened, self.lines = opened, opened.lines
        self.redraw()
        if self.has_focus and self.count():
            self.selected(self.cursor)

    def count(self) -> int:
        """Return the number of lines of the open levels."""
        return len(self.lines) if self.lines is not None else 0

    @property
    def order(self) -> TreeOrder:
        """The order of the lines."""
        return self.lines.tree.order if self.lines is not None else TreeOrder.NATURAL

    @property
    def order_in_words(self) -> str:
        """The order of the lines, in words."""
        return self.order.value

    def draw(self, number: int, width: int) -> Iterator[tuple[str, str]]:
        """Yield indent, marker and name, then the columns."""
        assert self.lines is not None and self.opened is not None
        line = self.lines.at(number)
        indent = " " * min(line.depth * _INDENT, _DEEPEST, width // 3)
        shown, left = columns.chosen(self.opened, width, _NAME)
        if isinstance(line.item, TreeValue):
            yield from _value(line.item, indent + "  ", width, columns.marks(self.opened, line.item))
            return
        name = escape(self.lines.tree.name(line.parent, line.item)) or '""'
        if isinstance(line.item, int):
            tied = columns.marks(self.opened, line.item)
            yield indent + "  ", "plain"
            room = left - len(indent) - 2
            lent, pieces = columns.lent(
                columns.of_tensor(self.opened, line.item, shown), cell_len(name + tied) - room, width
            )
            yield marked(name, tied, room + lent), "plain"
            yield from pieces
            return
        yield indent + ("▾ " if line.item.is_open else "▸ "), "accent"
        if not line.item.rows:  # nothing of it stands in columns: all the room is for its name and class
            left, shown = width - 2, {}
        room = left - len(indent) - 2
        blocks = self._marked(line.item)
        name += columns.marks(self.opened, line.item)
        wanted = cell_len(name) + (2 + cell_len(blocks) if blocks else 0)
        lent, pieces = columns.lent(columns.of_branch(self.opened, line.item, shown), wanted - room, width)
        yield from _level(line.item, name, room + lent, blocks)
        yield from pieces

    def _marked(self, fold: TreeBranch) -> str:
        """Return the numbers of a fold's blocks that have findings; "" where all or none have."""
        assert self.opened is not None
        badges = self.opened.badges
        if not fold.blocks or badges.worst(fold) is None:
            return ""
        found = [block.name.partition(".")[0] for block in fold.blocks if badges.worst(block) is not None]
        return "" if len(found) == len(fold.blocks) else f"● {and_more(found, _NAMED, spelt=str)}"

    def line(self) -> TreeLine | None:
        """Return the line that the cursor is on."""
        return self.lines.at(self.cursor) if self.lines is not None and self.count() else None

    def selected(self, number: int) -> None:
        """Tell what the cursor is on."""
        if self.lines is not None and number < len(self.lines):
            self.post_message(ItemSelected(self.lines.at(number).item))

    def activated(self, number: int) -> None:
        """Open or close a level; show more of anything else."""
        assert self.lines is not None
        item = self.lines.at(number).item
        if isinstance(item, TreeBranch):
            self.action_toggle_level()
        else:
            self.post_message(ItemActivated(item))

    def clicked(self, number: int, x: int) -> None:
        """Open or close a level where the marker, or the space left of it, was clicked."""
        line = self.line()
        if line is not None and isinstance(line.item, TreeBranch) and x < line.depth * _INDENT + 2:
            self.action_toggle_level()

    def action_toggle_level(self) -> None:
        """Open a closed level, close an open one."""
        line = self.line()
        if line is None or not isinstance(line.item, TreeBranch):
            return
        if line.item.is_open:
            self._close(line.item)
        else:
            self._open(line.item)

    def action_open(self) -> None:
        """Open the level, or go to its first line."""
        line = self.line()
        if line is None or not isinstance(line.item, TreeBranch):
            return
        if line.item.is_open:
            self.cursor += 1 if line.item.height else 0
        else:
            self._open(line.item)

    def action_close(self) -> None:
        """Close the level, or go to the one above."""
        line = self.line()
        if line is None or self.lines is None:
            return
        if isinstance(line.item, TreeBranch) and line.item.is_open:
            self._close(line.item)
        elif line.parent.parent is not None:
            self.cursor = self.lines.number(line.parent.parent, line.parent.index)

    def action_open_all(self) -> None:
        """Open everything below, nearest levels first."""
        line, lines = self.line(), self.lines
        if line is None or lines is None or not isinstance(line.item, TreeBranch):
            return
        branch = line.item
        self.compute(lambda: lines.tree.grow_below(branch, _OPENED), self._opened_all, "tree", len(branch.rows))

    def _opened_all(self, branches: list[TreeBranch]) -> None:
        assert self.lines is not None
        for branch in branches:
            self.lines.open(branch)
        self.redraw()

    def action_order(self) -> None:
        """Turn to the next order: natural numbers, as in the file, or largest first."""
        measured = self.opened is not None and bool(self.opened.values)
        self._again(self.order.next(measured), self._rows())

    def narrow(self, rows: Rows | None) -> None:
        """Show only these tensors (None: all)."""
        self._again(self.order, rows)

    def reveal(self, path: KeyPath) -> None:
        """Go to the thing at a key path, opening what is above it."""
        lines = self.lines
        if lines is None:
            return
        rows = len(lines.tree.root.rows)
        self.compute(lambda: lines.tree.grow_towards(path), lambda _: self._revealed(path), "tree", rows)

    def _revealed(self, path: KeyPath) -> None:
        number = self.lines.reveal(path) if self.lines is not None else None
        if number is not None:
            self.redraw()
            self.go_to_line(number)

    def reveal_item(self, item: TreeItem) -> None:
        """Go to a line of this tree, or of the one that it has taken the place of."""
        lines = self.lines
        if lines is None:
            return
        if isinstance(item, TreeBranch) and item.rows:
            path, prefix = lines.tree.path(item.rows[0]), item.prefix
            rows = len(lines.tree.root.rows)
            self.compute(
                lambda: lines.tree.grow_towards(path), lambda way: self._revealed_level(way, item, prefix), "tree", rows
            )
        else:
            self.reveal(lines.tree.path(item))

    def _revealed_level(self, way: list[tuple[TreeBranch, int]], level: TreeBranch, prefix: str) -> None:
        """Go to the level on this way that begins with ``prefix`` at the same place."""
        assert self.lines is not None
        for branch, index in way:
            self.lines.open(branch)
            child = (branch.children or [])[index]
            if isinstance(child, TreeBranch) and (child.path, child.prefix, child.span) == (
                level.path,
                prefix,
                level.span,
            ):
                self.redraw()
                self.go_to_line(self.lines.number(branch, index))
                return

    def _rows(self) -> Rows | None:
        return self.lines.tree.root.rows if self.lines is not None and self.lines.tree.filtered else None

    def _open(self, branch: TreeBranch) -> None:
        lines = self.lines
        assert lines is not None
        self.compute(lambda: lines.tree.grow(branch), lambda _: self._grown(branch), "tree", 2 * len(branch.rows))

    def _grown(self, branch: TreeBranch) -> None:
        assert self.lines is not None
        self.lines.open(branch)
        self.redraw()

    def _close(self, branch: TreeBranch) -> None:
        assert self.lines is not None
        self.lines.close(branch)
        self.redraw()

    def _again(self, order: TreeOrder, rows: Rows | None) -> None:
        if self.opened is None:
            return
        whole, values_of = self.opened.lines, self.opened.values_of
        if rows is None and whole.tree.order is order:
            self._replace(whole)
            return
        many = len(whole.tree.table) + (len(rows) if rows is not None else 0)
        self.compute(lambda: _made(whole, order, rows, values_of), self._replace, "tree", many)

    def _replace(self, made: Visible) -> None:
        line = self.line()
        place = made.tree.path(line.item) if line is not None and isinstance(line.item, int) else None
        self.lines = made
        if self.opened is not None and not made.tree.filtered:
            self.opened.lines = made
        self.redraw()
        self.post_message(OrderChanged(self.order_in_words))
        row = made.tree.table.row_of.get(place) if place is not None and made.tree.table.row_of else None
        if row is None or place is None:
            self.action_first()
        else:
            self._revealed(place)


def _made(lines: Visible, order: TreeOrder, rows: Rows | None, values_of: ValuesOf) -> Visible:
    made = lines.again(order, rows, values_of)
    if rows is not None:
        made.open_all(made.tree.root, _OPENED)
    return made


def _level(branch: TreeBranch, name: str, left: int, marked: str) -> Iterator[tuple[str, str]]:
    """Yield the name of a level, and behind it, dim, its role or its class, or what is ``marked`` in it."""
    role = branch.role if branch.role not in ("", "model") and branch.role not in name else branch.kind
    remark = marked or escape(role)
    if not remark or cell_len(name) + 2 + cell_len(remark) > left:
        yield fit_middle(name, left), "level"
        return
    yield name + "  ", "level"
    yield fit(remark, left - cell_len(name) - 2), "dim"


def _value(item: TreeValue, indent: str, width: int, marks: str) -> Iterator[tuple[str, str]]:
    if item.more:
        yield fit(f"{indent}… {plural(item.more, 'more value')}", width), "dim"
        return
    name = escape(item.name) or '""'
    named = f"{indent}{fit_middle(name, min(cell_len(name), width // 2))}{marks}  "
    yield named, "plain"
    yield fit(said(item.node), width - cell_len(named)), "dim"
