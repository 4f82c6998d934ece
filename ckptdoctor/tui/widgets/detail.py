"""Shows the facts about the thing under the cursor: a tensor, a level, a value or a finding.

Here the view of a tensor's values will stand; what the headers say comes first, at once, without reading anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import RenderResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.findings import Finding
from ckptdoctor.look.inspector import Look, Refused
from ckptdoctor.report.contents import place
from ckptdoctor.report.escape import escape
from ckptdoctor.report.numbers import plural
from ckptdoctor.report.wrapping import abridged
from ckptdoctor.tui.background import Background, until_cancelled
from ckptdoctor.tui.models.facts import facts, title
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.tree import TreeItem
from ckptdoctor.tui.widgets.line_view import of_severity
from ckptdoctor.tui.widgets.tensor.drawing import Scale, histogram, statistics
from ckptdoctor.wording import beyond

_KEYS = 200  # keys of a finding that are listed
_FINDINGS = 6  # findings about something that are listed with it


class Detail(VerticalScroll):
    """A pane that scrolls when there is more than fits."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"detail--{name}" for name in ("label", "error", "warning", "info", "code")
    }

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._opened_on: TreeItem | None = None
        self._has_moved = False

    def compose(self) -> Iterator[Widget]:
        """The text; more parts, such as histograms, are mounted below it."""
        yield Static(id="facts", markup=False)
        yield ValuesPreview(id="values-preview")

    def clear(self) -> None:
        """Say nothing."""
        self.border_title = Content("")
        self._say(Text())

    def show_item(self, opened: OpenedCheckpoint, item: TreeItem) -> None:
        """Say what the headers say of it, and which findings name it."""
        self.border_title = Content(title(opened, item))
        text = Text()
        label = self._style("label")
        for name, said in facts(opened, item):
            text.append(f"{name:<10} " if name else "", label).append(said + "\n")
        about = opened.badges.about(item)
        for number, finding in enumerate(about[:_FINDINGS]):
            lead = "" if number else "\n"
            badge, _ = of_severity(finding.severity)
            text.append(f"{lead}{badge.strip()} {finding.code} {finding.name}", self._style(finding.severity.value))
            text.append(f"  {escape(abridged(finding.message))}\n")
        if len(about) > _FINDINGS:
            text.append(beyond(len(about) - _FINDINGS, "finding", before="and ", after="\n"), label)
        self._say(text)
        self._preview(opened, item)

    def _preview(self, opened: OpenedCheckpoint, item: TreeItem) -> None:
        """The values of a tensor as well, once somebody has moved: opening a file reads no values."""
        if self._opened_on is None:
            self._opened_on = item
        self._has_moved |= item != self._opened_on
        if isinstance(item, int) and self._has_moved:
            self.query_one(ValuesPreview).look_at(opened, item)

    def show_finding(self, finding: Finding) -> None:
        """Say all that a finding says."""
        self.border_title = Content(f"{finding.code} {finding.name}")
        text = Text()
        text.append(finding.severity.value, self._style(finding.severity.value)).append(
            f"  {escape(finding.message)}\n"
        )
        if finding.cause:
            text.append(f"\n{escape(finding.cause)}\n")
        if finding.torch_says:
            text.append("\nLoading says\n", self._style("label"))
            text.append("".join([f"  {escape(line)}\n" for line in finding.torch_says]))
        if finding.fix is not None:
            text.append(f"\n{finding.fix.safety.value} repair  ", self._style("label"))
            text.append(f"{escape(finding.fix.option)}\n", self._style("code"))
            text.append(f"{escape(finding.fix.title)}\n")
        if finding.advice:
            text.append(f"\n{escape(finding.advice)}\n")
        text.append("".join([f"  {escape(each)}\n" for each in finding.commands]), self._style("code"))
        self._keys(text, finding)
        self._say(text)

    def _keys(self, text: Text, finding: Finding) -> None:
        if not finding.keys:
            return
        text.append(f"\n{plural(len(finding.keys), 'key')}\n", self._style("label"))
        text.append("".join([f"  {abridged(place(path))}\n" for path in finding.keys[:_KEYS]]))
        if len(finding.keys) > _KEYS:
            text.append(beyond(len(finding.keys) - _KEYS, "key", before="  … and ", after="\n"))

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"detail--{name}")

    def _say(self, text: Text) -> None:
        self.query_one(ValuesPreview).forget()
        text.rstrip()
        facts = self.query_one("#facts", Static)
        facts.update(text, layout=False)
        room = facts.content_size
        # as many lines as before need no other places for all that is on the screen, which take most of a key's time
        if not room.width or facts.visual.get_height(facts.styles.get_render_rules(), room.width) != room.height:
            facts.refresh(layout=True)
        self.scroll_home(animate=False)


REST = 0.08  # seconds that the cursor rests before anything is read
_BARS = 4  # lines of the histogram
_STYLES = ("label", "bar", "warning", "error")


class ValuesPreview(Background):
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

    def look_at(self, opened: OpenedCheckpoint, row: int) -> None:
        """Look at a tensor, once the cursor has come to rest."""
        self.forget()
        if opened.table.elements[row]:
            self._timer = self.set_timer(REST, lambda: self._read(opened, row))

    def _read(self, opened: OpenedCheckpoint, row: int) -> None:
        tensor = opened.table.tensors[row]

        def work() -> Look | Refused:
            return opened.inspector.look(tensor, Work(listener=until_cancelled()))

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
        """The text that was worked out."""
        pane = self.parent
        width = pane.scrollable_content_region.width - 2 if isinstance(pane, Widget) else 40
        styles = {name: self.get_component_rich_style(f"values--{name}") for name in _STYLES}
        if isinstance(self._seen, Look):
            text = Text("\n").append_text(statistics(self._seen, width, styles)).append("\n")
            return text.append_text(histogram(self._seen, Scale.LINEAR, width, _BARS, styles))
        if isinstance(self._seen, Refused) and self._seen.reason:
            return Text(f"\nNo values: {escape(self._seen.reason)}\n", styles["label"])
        return Text()
