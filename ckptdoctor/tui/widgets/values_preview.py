"""Shows the values of a tensor next to what its header says: numbers, a histogram and a heatmap.

They are read once the cursor has rested on it; of a level those of its few tensors are.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text
from textual.app import RenderResult
from textual.events import Resize
from textual.timer import Timer
from textual.widget import Widget

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.look.inspector import Look, Refused, Values
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import shape
from ckptdoctor.tui.background import Background, until_cancelled
from ckptdoctor.tui.models import summaries
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.slices import Slice, first
from ckptdoctor.tui.models.tree import TreeBranch
from ckptdoctor.tui.widgets.looks import Looks
from ckptdoctor.tui.widgets.tensor.drawing import Scale, histogram, statistics
from ckptdoctor.tui.widgets.tensor.heatmap import Heatmap

_MAP = 5  # lines that a heatmap has at least
_COUNTED = 100  # parts of a large level, and of these parts
_MEASURED, _READ = 4_000, 64 << 20  # tensors and bytes of a level whose values are read when somebody looks at it
REST = _PAUSE = 0.08  # seconds that the cursor rests before anything is read, or counted
_BARS = 4  # lines of the histogram


class PreviewMap(Heatmap):
    """A heatmap in what room the numbers leave; a click on it leads to the value."""

    def __init__(self, opened: OpenedCheckpoint | None, row: int, id: str) -> None:
        super().__init__(opened, row, id)
        self.can_focus = False
        self.display = False

    def look_at(self, opened: OpenedCheckpoint, row: int, lines: int) -> None:
        """Draw the first slice of a tensor in so many lines."""
        tensor = opened.table.tensors[row]
        is_flat = sum([size > 1 for size in tensor.shape]) < 2
        if is_flat or lines < _MAP or opened.inspector.seen_as(tensor) is not tensor:
            return
        self._opened, self._row, self._slice = opened, row, None
        self.styles.height = lines
        self.display = True
        self.call_after_refresh(self._fit, lines, first(tensor.shape))

    def _fit(self, lines: int, seen: Slice) -> None:
        """Draw it in fewer lines where the text above has got longer since they were counted."""
        pane = self.parent
        over = pane.max_scroll_y if isinstance(pane, Widget) else 0
        if over:
            self.styles.height = max(_MAP, lines - over)
        self.show(seen)


class ValuesPreview(Background, Looks):
    """Nothing, until the cursor has rested on a tensor for a moment."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._timer: Timer | None = None
        self._seen: Look | Refused | None = None
        self._of = ""  # whose values they are, where the tensor consists of others

    def forget(self) -> None:
        """Show nothing, and read nothing that was about to be."""
        if self._timer is not None:
            self._timer.stop()
        self.workers.cancel_group(self, "values")
        self._show(None)

    def prepare(self, opened: OpenedCheckpoint, branch: TreeBranch, then: Callable[[], None]) -> None:
        """Count the parts of a large level, which a key would have to wait for, once the cursor has come to rest.

        Threads of levels that it only passes would go on, and take turns with the screen.
        """
        self.forget()

        def count() -> None:
            self.compute(lambda: summaries.parts(opened, branch, _COUNTED), lambda _: then(), "parts")

        self._timer = self.set_timer(_PAUSE, count)

    def measure(self, opened: OpenedCheckpoint, branch: TreeBranch, then: Callable[[], None]) -> None:
        """Read the values of what is in a level, where they are few, once the cursor has come to rest."""
        self.forget()
        if len(branch.rows) <= _MEASURED and opened.lines.tree.figures(branch).nbytes <= _READ:
            self._timer = self.set_timer(REST, lambda: self._measure(opened, branch, then))

    def _measure(self, opened: OpenedCheckpoint, branch: TreeBranch, then: Callable[[], None]) -> None:
        tensors = [opened.table.tensors[row] for row in branch.rows if opened.glimpse_of(row) is None]
        if not tensors:
            return

        def work() -> Values | Refused:
            return opened.inspector.measure(tensors, Work(listener=until_cancelled()))

        def take(found: Values | Refused) -> None:
            if not isinstance(found, Refused) and found.tensors:
                opened.glimpses.update(found.tensors)
                then()

        self.compute(work, take, "values")

    def look_at(self, opened: OpenedCheckpoint, row: int) -> None:
        """Look at a tensor, once the cursor has come to rest."""
        self.forget()
        if opened.table.elements[row]:
            self._timer = self.set_timer(REST, lambda: self._read(opened, row))

    def _read(self, opened: OpenedCheckpoint, row: int) -> None:
        tensor = opened.table.tensors[row]
        self._of = ""

        def work() -> Look | Refused:
            return opened.inspector.look(tensor, Work(listener=until_cancelled()))

        def then(seen: Look | Refused) -> None:
            inner = opened.inspector.seen_as(tensor)
            if isinstance(inner, Tensor) and inner is not tensor:
                self._of = f"shown: its {inner.dtype.name} {shape(inner.shape)}"
            self._show(seen)
            if isinstance(seen, Look):
                self.call_after_refresh(self._draw_map, opened, row)

        self.compute(work, then, "values")

    def _draw_map(self, opened: OpenedCheckpoint, row: int) -> None:
        pane = self.parent
        # one colour all over says nothing that the text does not
        if isinstance(self._seen, Look) and not self._seen.values.constant and isinstance(pane, Widget):
            used = self.virtual_region.bottom - pane.query_one("#facts").virtual_region.y
            pane.query_one(PreviewMap).look_at(opened, row, pane.scrollable_content_region.height - used - 1)

    def _show(self, seen: Look | Refused | None) -> None:
        if seen is None and self._seen is None:
            return
        self._seen = seen
        self.refresh(layout=True)

    def on_resize(self, event: Resize) -> None:
        """Draw again at another width."""
        self.refresh()

    def render(self) -> RenderResult:
        """Return the statistics and the histogram, or why there are no values."""
        pane = self.parent
        width = pane.scrollable_content_region.width - 2 if isinstance(pane, Widget) else 40
        if isinstance(self._seen, Look):
            text = Text("\n").append(f"{self._of}\n" if self._of else "", self.look("dim"))
            text.append_text(statistics(self._seen, width, self.look)).append("\n")
            return text.append_text(histogram(self._seen, Scale.LINEAR, width, _BARS, self.look))
        if isinstance(self._seen, Refused) and self._seen.reason:
            return Text(f"\nNo values. {escape(self._seen.reason)}\n", self.look("dim"))
        return Text()
