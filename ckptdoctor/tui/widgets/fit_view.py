"""Draws the fit to a target: coverage as bars, step by step; and the names that a line is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.binding import BindingType

from ckptdoctor.fit.fit import Fit
from ckptdoctor.rendering.numbers import count, plural
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.messages import RowActivated, RowSelected
from ckptdoctor.tui.models.fitted import FitNames, FitRow, rows
from ckptdoctor.tui.models.planned import DROPPED, PlanRow
from ckptdoctor.tui.widgets.line_view import LineView, fit_middle
from ckptdoctor.tui.widgets.line_view import fit as fitted
from ckptdoctor.tui.widgets.plan import PlanView
from ckptdoctor.wording import percent

_BARS = ((110, 20), (72, 10), (0, 0))  # cells of a bar in lines of so many cells or more
_KEYS = 18
_SHARE = 8

Pieces = Iterator[tuple[str, str]]


class FitView(LineView):
    """As it is, then each step, then what is left over."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "activate", "names", "Go to the names of this line", show=True),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.fit: Fit | None = None
        self.rows: list[FitRow] = []

    def show(self, fit: Fit) -> None:
        """Show how something fits; the cursor begins where there is something to read."""
        self.fit, self.rows = fit, rows(fit)
        self.redraw()
        self.refresh(layout=True)
        self.cursor = 1 if len(self.rows) > 1 else 0
        self.selected(self.cursor)

    def count(self) -> int:
        """Return the number of lines."""
        return len(self.rows)

    def draw(self, number: int, width: int) -> Pieces:
        """Yield number, title and rule, then bars for keys and for parameters."""
        assert self.fit is not None
        row, total = self.rows[number], self.fit
        if row.keys is None or row.parameters is None:
            told = plural(len(row.misfits), "key")
            yield "   ", "plain"
            yield fit_middle(row.title, width - 3 - len(told)), "warning"
            yield told, "warning"
            return
        bar = next(cells for least, cells in _BARS if width >= least)
        code = f"  {row.code}" if row.code else ""
        room = width - 3 - _KEYS - _SHARE - 2 * (bar + 1 if bar else 0)
        title = room - len(code)
        lead = f"{row.number:>2} " if row.number else "   "
        yield lead, "accent"
        yield fit_middle(row.title, min(title, len(row.title))), "plain" if row.number else "level"
        yield fitted(code, room - min(title, len(row.title))), "dim"
        whole = row.keys == total.total_keys
        look = "accent" if whole else "plain"
        yield from _bar(row.keys, total.total_keys, bar)
        yield fitted(f"{count(row.keys)} of {count(total.total_keys)}", _KEYS - 5, right=True) + " keys", look
        yield from _bar(row.parameters, total.total_parameters, bar)
        yield fitted(percent(row.parameters, total.total_parameters), _SHARE, right=True), look

    def selected(self, number: int) -> None:
        """Tell which row the cursor is on."""
        if number < len(self.rows):
            self.post_message(RowSelected(self.rows[number]))

    def activated(self, number: int) -> None:
        """Ask for the names that the row is about."""
        self.post_message(RowActivated())


class NamesView(PlanView):
    """Names before and after a step, or those that are left over, in groups: in full, however many lines that takes."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.names: Sequence[FitNames] = ()

    def show_names(self, names: Sequence[FitNames]) -> None:
        """Show these."""
        self.names = names
        self.show([_row(each) for each in names])


def _row(listed: FitNames) -> PlanRow:
    if listed.after == DROPPED:
        return PlanRow(DROPPED, listed.before, right=listed.right)
    return PlanRow("pair", listed.before, listed.after, listed.right)


def _bar(part: int, whole: int, cells: int) -> Pieces:
    """Yield a bar in eighths of a cell: full only where nothing is missing, empty only where nothing is there."""
    if not cells:
        return
    eighths = 8 * cells * part // whole if whole else 8 * cells
    eighths = max(1, eighths) if part else 0
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
    yield " " + drawn, "accent"
    yield "░" * (cells - len(drawn)), "dim"
