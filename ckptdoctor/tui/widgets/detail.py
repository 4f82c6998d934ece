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
from ckptdoctor.rendering.contents import place
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import plural
from ckptdoctor.rendering.value_numbers import number
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.tui.background import FEW, Background, until_cancelled
from ckptdoctor.tui.models import summaries
from ckptdoctor.tui.models.facts import facts, title
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.slices import first
from ckptdoctor.tui.models.tree import TreeBranch, TreeItem
from ckptdoctor.tui.widgets.line_view import fit_middle, of_severity
from ckptdoctor.tui.widgets.tensor.drawing import Scale, histogram, statistics
from ckptdoctor.tui.widgets.tensor.heatmap import Heatmap
from ckptdoctor.wording import and_more, beyond, percent

_KEYS = 200  # keys of a finding that are listed
_PARTS = 8  # parts of a level that are drawn
_PART = 22  # cells of their names
_BLOCKS = 8  # blocks that are named
_MAP = 5  # lines that a heatmap has at least
_LABEL = 10  # cells of what a line is called
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
        yield PreviewMap(None, 0, id="preview-map")

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
        for at, finding in enumerate(about[:_FINDINGS]):
            lead = "" if at else "\n"
            badge, _ = of_severity(finding.severity)
            text.append(f"{lead}{badge.strip()} {finding.code} {finding.name}", self._style(finding.severity.value))
            text.append(f"  {escape(abridged(finding.message))}\n")
        if len(about) > _FINDINGS:
            text.append(beyond(len(about) - _FINDINGS, "finding", before="and ", after="\n"), label)
        if isinstance(item, TreeBranch) and item.rows:
            self._sum_up(opened, item, text)
        self._say(text)
        self._preview(opened, item)

    def _sum_up(self, opened: OpenedCheckpoint, branch: TreeBranch, text: Text) -> None:
        """Draw what is in a level: the sizes of its parts, and the values of its blocks from the first to the last."""
        width = max(20, self.scrollable_content_region.width - _LABEL - 2)
        label, drawn = self._style("label"), self._style("code")
        if len(branch.rows) <= FEW // 4:
            sizes = summaries.parts(opened, branch)
            whole = sum([part.nbytes for part in sizes]) or 1
            text.append(f"\n{'sizes':<{_LABEL}} " if len(sizes) > 1 else "", label)
            for at, part in enumerate(sizes[:_PARTS] if len(sizes) > 1 else ()):
                room = min(_PART, width // 2)
                text.append(" " * (_LABEL + 1) if at else "").append(f"{fit_middle(escape(part.name), room)} ")
                text.append(summaries.bar(part.nbytes, whole, width - room - 8), drawn)
                text.append(f" {percent(part.nbytes, whole)}\n", label)
            if len(sizes) > _PARTS:
                text.append(" " * (_LABEL + 1) + beyond(len(sizes) - _PARTS, "part", before="and ", after="\n"), label)
        if branch.blocks:
            self._by_depth(opened, branch, text, width)

    def _by_depth(self, opened: OpenedCheckpoint, branch: TreeBranch, text: Text, width: int) -> None:
        label, drawn = self._style("label"), self._style("code")
        found = summaries.blocks(branch, opened.values_of)
        if not found:
            text.append(f"\n{'by depth':<{_LABEL}} ", label).append("press e to read the values\n", label)
            return
        for name, numbers in (("norm", [each.norm for each in found]), ("std", [each.std for each in found])):
            text.append(f"\n{name:<{_LABEL}} ", label).append(summaries.strip(numbers, width), drawn)
            text.append(f"\n{'':<{_LABEL}} {number(min(numbers))} … {number(max(numbers))}", label)
        text.append(f"\n{'':<{_LABEL}} by depth, {found[0].name} to {found[-1].name}\n", label)
        for name, odd, look in (
            ("NaN", [each.name for each in found if each.nan], "error"),
            ("infinite", [each.name for each in found if each.infinite], "error"),
            ("all zero", [each.name for each in found if each.zero], "warning"),
        ):
            if odd:
                text.append(f"{name:<{_LABEL}} ", label)
                text.append(f"in {and_more(odd, _BLOCKS, spelt=str)}\n", self._style(look))

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
        self.query_one(PreviewMap).display = False
        text.rstrip()
        facts = self.query_one("#facts", Static)
        facts.update(text, layout=False)
        room = facts.content_size
        # as many lines as before need no other places for all that is on the screen, which take most of a key's time
        if not room.width or facts.visual.get_height(facts.styles.get_render_rules(), room.width) != room.height:
            facts.refresh(layout=True)
        self.scroll_home(animate=False)


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
        self.call_after_refresh(self.show, first(tensor.shape))


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

        def then(seen: Look | Refused) -> None:
            self._show(seen)
            if isinstance(seen, Look):
                self.call_after_refresh(self._draw_map, opened, row)

        self.compute(work, then, "values")

    def _draw_map(self, opened: OpenedCheckpoint, row: int) -> None:
        pane = self.parent
        if self._seen is not None and isinstance(pane, Widget):
            used = self.virtual_region.bottom - pane.query_one("#facts").virtual_region.y
            pane.query_one(PreviewMap).look_at(opened, row, pane.scrollable_content_region.height - used - 1)

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
