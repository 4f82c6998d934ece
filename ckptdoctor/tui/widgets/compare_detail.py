"""What is known of the line under the cursor of a comparison: both sides, and how far they are apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rich.text import Text
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ckptdoctor.tui.models.comparison import Comparison
from ckptdoctor.tui.models.comparison_facts import facts, title
from ckptdoctor.tui.models.side_by_side import Line


class CompareDetail(VerticalScroll):
    """A pane that scrolls when there is more than fits."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"detail--label"}

    def compose(self) -> Iterator[Static]:
        """The text."""
        yield Static(id="compare-facts", markup=False)

    def show(self, comparison: Comparison, line: Line) -> None:
        """Say all of a line."""
        text = Text()
        label = self.get_component_rich_style("detail--label")
        for name, said in facts(comparison, line):
            text.append(f"{name:<8} ", label).append(said + "\n")
        self.say(title(comparison, line), text)

    def say(self, title: str, text: Text | str) -> None:
        """Say something, which is escaped already."""
        self.border_title = Content(title)
        self.query_one("#compare-facts", Static).update(text)
        self.scroll_home(animate=False)
