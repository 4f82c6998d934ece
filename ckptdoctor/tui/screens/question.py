"""A question before anything is written: what it says is the file, and that nothing else changes."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ckptdoctor.tui.keys import ANYWHERE, key


class Question(ModalScreen[bool]):
    """True: write it. What is asked is the ``text`` of a subclass."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "answer(True)", "write", "Write the new file", show=True, display="⏎"),
        key("escape,n", "answer(False)", "back", "Back; nothing is written", show=True, display="esc"),
        *ANYWHERE,
    ]

    def compose(self) -> ComposeResult:
        """The file first."""
        with VerticalScroll(id="question", classes="box"):
            yield Static(self.text(), markup=False)

    def on_mount(self) -> None:
        """Name it."""
        box = self.query_one("#question")
        box.border_title = "write this file?"
        box.border_subtitle = Content("⏎ write   esc back")

    def action_answer(self, answer: bool) -> None:
        """Write it, or not."""
        self.dismiss(answer)

    def text(self) -> Text:
        """What is asked."""
        raise NotImplementedError  # abc.ABC and Textual's screens have metaclasses that do not go together
