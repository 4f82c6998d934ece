"""Asks for an element by its indexes."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ckptdoctor.report.numbers import plural, shape
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.models.slices import Index, parse_index


class IndexScreen(ModalScreen[Index]):
    """A line to type in; what is wrong with it stands below."""

    BINDINGS: ClassVar[list[BindingType]] = [key("escape", "leave", "leave", "Stay where you are")]

    def __init__(self, sizes: Index) -> None:
        super().__init__()
        self.sizes = sizes

    def compose(self) -> ComposeResult:
        """The line, and what it must hold."""
        with Vertical(id="index"):
            yield Input(placeholder=", ".join(["0"] * len(self.sizes)), compact=True)
            yield Static(self._hint(), markup=False, id="index-said")

    def on_mount(self) -> None:
        """Name it."""
        self.query_one("#index").border_title = "go to index"

    def _hint(self) -> str:
        return f"{plural(len(self.sizes), 'number')}, for {shape(self.sizes)[1:-1]}; -1 is the last"

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go there, if there is such an element."""
        event.stop()
        try:
            self.dismiss(parse_index(event.value, self.sizes))
        except ValueError as error:
            self.query_one("#index-said", Static).update(str(error))

    def action_leave(self) -> None:
        """Stay."""
        self.dismiss(None)
