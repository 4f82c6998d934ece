"""The values of the tensor under the cursor at a glance: statistics and a histogram, below what the headers say."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import RenderResult
from textual.events import Resize
from textual.timer import Timer
from textual.widget import Widget
from textual.worker import get_current_worker

from ckptdoctor.look.inspector import Look, Refused
from ckptdoctor.report.escape import escape
from ckptdoctor.tui.background import Background
from ckptdoctor.tui.models.book import Book
from ckptdoctor.tui.widgets.tensor.drawing import Scale, histogram, statistics

REST = 0.08  # seconds that the cursor rests before anything is read
_FIRST_REST = 0.4  # and before torch is imported: a key that is pressed meanwhile may have to wait for it
_BARS = 4  # lines of the histogram
_STYLES = ("label", "bar", "warning", "error")


class Glance(Background):
    """Nothing, until the cursor has rested on a tensor for a moment."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"values--{name}" for name in _STYLES}

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._timer: Timer | None = None
        self._seen: Look | Refused | None = None

    def forget(self) -> None:
        """Show nothing, and read nothing that was about to be."""
        if self._timer is not None:
            self._timer.stop()
        self.workers.cancel_group(self, "values")
        self._show(None)

    def look_at(self, book: Book, row: int) -> None:
        """Look at a tensor, once the cursor has come to rest."""
        self.forget()
        if book.table.elements[row]:
            rest = REST if book.peek.is_quick else _FIRST_REST
            self._timer = self.set_timer(rest, lambda: self._read(book, row))

    def _read(self, book: Book, row: int) -> None:
        tensor = book.table.tensors[row]

        def work() -> Look | Refused:
            worker = get_current_worker()
            return book.peek.look(tensor, lambda: not worker.is_cancelled)

        self.compute(work, self._show, "values")

    def _show(self, seen: Look | Refused | None) -> None:
        if seen is None and self._seen is None:
            return
        self._seen = seen
        self.refresh(layout=True)

    def on_resize(self, event: Resize) -> None:
        """Another width."""
        self.refresh()

    def render(self) -> RenderResult:
        """What was seen."""
        pane = self.parent
        width = pane.scrollable_content_region.width - 2 if isinstance(pane, Widget) else 40
        styles = {name: self.get_component_rich_style(f"values--{name}") for name in _STYLES}
        if isinstance(self._seen, Look):
            text = Text("\n").append_text(statistics(self._seen, width, styles)).append("\n")
            return text.append_text(histogram(self._seen, Scale.LINEAR, width, _BARS, styles))
        if isinstance(self._seen, Refused) and self._seen.reason:
            return Text(f"\nNo values: {escape(self._seen.reason)}\n", styles["label"])
        return Text()
