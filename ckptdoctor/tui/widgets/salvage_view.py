"""Lists the tensors of a broken file, a line for each, with how much of it can be saved."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import show_path
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import shape, size
from ckptdoctor.tui.models.salvaged import LOST, PARTIAL, Fate
from ckptdoctor.tui.widgets.line_view import LineView, fit, fit_middle

_SAID, _SHAPE, _BYTES = 26, 22, 10
_NAME = 24  # cells that names have at least, before there are columns beside them
_LOOKS = {PARTIAL: ("◐ ", "warning"), LOST: ("● ", "error")}


class SalvageView(LineView):
    """Whole tensors have no mark, half a circle is something, a circle is nothing of it."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.fates: list[Fate] = []

    def show(self, fates: list[Fate]) -> None:
        """Show these tensors."""
        self.fates = fates
        self.redraw()

    def count(self) -> int:
        """The number of tensors."""
        return len(self.fates)

    def draw(self, number: int, width: int) -> Iterator[tuple[str, str]]:
        """Mark, name, shape, bytes, and what is there of it."""
        fate = self.fates[number]
        mark, look = _LOOKS.get(fate.kind, ("  ", "plain"))
        left = width - len(mark) - _SAID - _BYTES
        columns = left - _SHAPE >= _NAME
        name = escape(show_path(fate.path))
        yield mark, look
        yield fit_middle(name, left - _SHAPE if columns else left), "plain" if fate.kind != LOST else "dim"
        if columns:
            yield fit(f"{fate.dtype} {shape(fate.shape)}", _SHAPE, right=True), "dim"
        yield fit(size(fate.nbytes), _BYTES, right=True), "plain"
        yield "  " + fit(fate.said, _SAID - 2), look if fate.kind == PARTIAL else "dim"
