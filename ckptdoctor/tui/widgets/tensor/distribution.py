"""How the values of a tensor are distributed: statistics and a histogram, as large as there is room for."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import RenderResult
from textual.widget import Widget

from ckptdoctor.look.inspector import Look, Refused
from ckptdoctor.report.escape import escape
from ckptdoctor.tui.widgets.tensor.drawing import Scale, histogram, sampled, statistics


class Distribution(Widget, can_focus=True):
    """The screen gives it what was seen, and says on which scale to draw it."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"values--{name}" for name in ("label", "bar", "warning", "error")}

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._seen: Look | Refused | None = None
        self.scale = Scale.LINEAR

    def on_mount(self) -> None:
        """Name it."""
        self.border_title = "histogram"
        self.border_subtitle = f"{self.scale.value} · s changes"

    def show(self, seen: Look | Refused) -> None:
        """Show what was seen."""
        self._seen = seen
        said = sampled(seen) if isinstance(seen, Look) else ""
        self.border_title = f"histogram · {said}" if said else "histogram"
        self.refresh()

    def turn_scale(self) -> None:
        """To the next scale."""
        self.scale = self.scale.next
        self.border_subtitle = f"{self.scale.value} · s changes"
        self.refresh()

    def render(self) -> RenderResult:
        """Numbers, bars and axis, in all the room there is."""
        names = ("label", "bar", "warning", "error")
        styles = {name: self.get_component_rich_style(f"values--{name}") for name in names}
        width, height = self.content_size
        if self._seen is None:
            return Text("reading…", styles["label"])
        if isinstance(self._seen, Refused):
            return Text(escape(self._seen.reason), styles["label"])
        text = statistics(self._seen, width, styles)
        left = height - text.plain.count("\n") - 2
        if left >= 4:
            text.append("\n")
            left -= 1
        return text.append_text(histogram(self._seen, self.scale, width, left, styles))
