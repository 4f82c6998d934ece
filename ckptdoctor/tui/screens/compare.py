"""Shows two checkpoints side by side: what is the same, renamed, changed or missing, and how far values are apart."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.events import Resize
from textual.timer import Timer
from textual.widgets import Static
from textual.worker import Worker

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.differences import Side
from ckptdoctor.diffing.request import DiffRequest
from ckptdoctor.look.inspector import Inspector
from ckptdoctor.remote import addresses
from ckptdoctor.rendering.contents import heading
from ckptdoctor.rendering.depth import DepthMap
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import count, plural
from ckptdoctor.tui import messages
from ckptdoctor.tui.background import StillReading
from ckptdoctor.tui.keys import PANES, key
from ckptdoctor.tui.models import command_line
from ckptdoctor.tui.models.comparison import COUNTED, ComparedEntries, Flag, by_depth
from ckptdoctor.tui.models.pace import Pace
from ckptdoctor.tui.models.side_by_side import (
    SHOWN,
    ComparisonLine,
    EntryLine,
    LineOrder,
    Show,
    WantedLines,
    arranged,
    next_show,
    require_filter,
)
from ckptdoctor.tui.screens import CROWDED, WIDTHS
from ckptdoctor.tui.screens.browser import BrowserScreen
from ckptdoctor.tui.screens.difference import DifferenceScreen
from ckptdoctor.tui.screens.fit import FitScreen
from ckptdoctor.tui.screens.help import HelpScreen
from ckptdoctor.tui.screens.panes import PanedScreen
from ckptdoctor.tui.widgets.bars import KeyBar, TitleBar
from ckptdoctor.tui.widgets.compare_view import CompareDetail, CompareView
from ckptdoctor.tui.widgets.depth_strip import DepthStrip
from ckptdoctor.tui.widgets.filter_bar import FilterBar
from ckptdoctor.tui.widgets.line_view import fit_middle
from ckptdoctor.tui.workers import Comparing, SharedTarget

_PAUSE = 0.5  # seconds between two times that lines are made anew while values come in
HINT = "name, *.weight, is:changed, is:renamed, is:only-a, dtype:bf16, shape:64x*, >1MB, !not"

_Arranged = tuple[ComparedEntries, list[ComparisonLine], dict[Flag, int], "DepthMap | None"]


def reads_at_once(*paths: str) -> bool:
    """Return whether values are compared as soon as headers are: where both files are on this machine."""
    return not any(map(addresses.is_address, paths))


class CompareScreen(PanedScreen[None], StillReading):
    """A difference that fills in: headers first, then values."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = CROWDED
    AUTO_FOCUS = "CompareView"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("slash", "filter", "filter", "Filter by name, kind of change or size", show=True),
        key("v", "values", "values", "Compare all values; press again to stop or continue", show=True),
        key("m", "show", "show", "Show everything, or only what differs, was renamed, or is on one side", show=True),
        key("o", "order", "order", "By module, or the largest change first"),
        key("c", "fit", "fit", "Show how A fits B or the model, and which repairs help", show=True),
        key("escape", "back", "back", "Back to where the other file was chosen"),
        *PANES,
        key("question_mark,f1", "help", "help", "All keys, and the language of the filter", show=True),
    ]

    def __init__(self, path: str, other: str, settings: Settings) -> None:
        super().__init__()
        self.path = path
        self.other = other
        self.settings = settings
        named = SharedTarget(settings, path)
        self.target = named if named.is_named else SharedTarget(replace(settings, like=other))
        self.request = DiffRequest(path, other, settings.root)
        self.comparing = Comparing(self, self.request)
        self.comparison: ComparedEntries | None = None
        self.wanted = WantedLines()
        self._measuring: Worker[None] | None = None
        self._pause: Timer | None = None
        self._pace = Pace()
        self._opened: tuple[Inspector, Inspector] | None = None
        self._counts: dict[Flag, int] = {}
        self._depth = ""  # the layers that differ, in few words

    def compose(self) -> ComposeResult:
        """Yield both files and how they differ, the lines, and the facts about the cursor's line."""
        yield TitleBar([" ↔ ".join([escape(addresses.shown(each)) for each in (self.path, self.other)])], id="title")
        yield Static(id="sides", markup=False)
        yield FilterBar(lambda: self.query_one(CompareView).focus(), id="filter", check=require_filter, hint=HINT)
        yield DepthStrip(id="depth")
        yield CompareView(id="compare")
        yield CompareDetail(id="compare-detail")
        yield KeyBar()

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one("#compare").border_title = "A ↔ B"
        self.query_one(FilterBar).display = False
        self.run_worker(self.comparing.headers, group="comparing", exclusive=True, thread=True)

    def on_resize(self, event: Resize) -> None:
        """Fit the lines at the top again."""
        self._say_sides()

    # what comparing says

    def on_comparison_made(self, message: messages.ComparisonMade) -> None:
        """Show what the headers tell."""
        again, self.comparison = self.comparison is not None, message.comparison
        self.comparison.measuring = again
        self.query_one(TitleBar).say(state="" if again else "values not compared")
        self._say_sides()
        self._put_in_lines()
        if not again and (self.settings.deep or reads_at_once(self.path, self.other)):
            self.action_values()

    def on_progressed(self, message: messages.Progressed) -> None:
        """Say how far it is."""
        if self._measuring is not None and not self._measuring.is_cancelled:
            self.query_one(TitleBar).say(state=" · ".join([*self._pace.said(message.progress), "v stops"]))

    def on_values_compared(self, message: messages.ValuesCompared) -> None:
        """Take up what is known by now."""
        comparison = self.comparison
        if comparison is None:
            return
        if message.news is not None:
            comparison.learn(message.news)
        if message.ended:
            self._stopped("values compared" if comparison.found.compared else "stopped: v continues")
            self._say_sides()
            self._put_in_lines()
        elif self._pause is None:
            self._pause = self.set_timer(_PAUSE, self._put_in_lines)

    def on_comparing_failed(self, message: messages.ComparingFailed) -> None:
        """Leave with the reason, or show it where there are lines already."""
        self._stopped("")
        self.filled.set()
        if self.comparison is None:
            self.give_up(message.sentence)
        else:
            self.app.notify(message.sentence, severity="error", markup=False)

    def _stopped(self, state: str) -> None:
        self._measuring = None
        self.query_one(TitleBar).say(state=state)

    # what is shown

    def _put_in_lines(self) -> None:
        if self._pause is not None:
            self._pause.stop()
            self._pause = None
        comparison, wanted = self.comparison, self.wanted
        if comparison is not None:
            self.compute(
                lambda: (comparison, arranged(comparison, wanted), comparison.counts(), by_depth(comparison)),
                self._arranged,
                "lines",
                2 * len(comparison),
            )

    def _arranged(self, made: _Arranged) -> None:
        comparison, lines, self._counts, depth = made
        self.query_one(DepthStrip).show(depth)
        self._depth = depth.headline if depth is not None else ""
        self._say_sides()
        view = self.query_one(CompareView)
        view.show(comparison, lines)
        if comparison.found.compared:
            view.go_to_first_difference()
        counts = [f"{count(number)} {COUNTED[kind]}" for kind, number in self._counts.items() if number]
        view.border_title = Content(" · ".join(counts) or "nothing differs")
        show = "" if self.wanted.show is Show.ALL else f"only {self.wanted.show.value.removeprefix('only ')} · "
        far = "relative L2 on the right · " if comparison.measuring else ""
        view.border_subtitle = Content(f"{show}{far}{self.wanted.order.value}")
        entries = sum([isinstance(line, EntryLine) for line in lines]) if self.wanted.text else 0
        self.query_one(FilterBar).say(
            f"{count(entries)} of {plural(len(comparison), 'tensor')}" if self.wanted.text else ""
        )
        if not lines:
            self.query_one(CompareDetail).say("", "nothing to show")
        self.filled.set()

    def _say_sides(self) -> None:
        comparison = self.comparison
        if comparison is None:
            return
        found, width = comparison.found, max(20, self.size.width - 2)
        text = Text(overflow="fold")
        for name, side in (("A", found.a), ("B", found.b)):
            text.append(f"{name}  ", "bold").append(f"{_heading(side, width - 3)}\n")
        said = " · ".join(filter(None, (self._depth, escape(found.summary))))
        lines = 1 if self.has_class("-tiny") else 3 if self.has_class("-low") else 4
        room = lines * (width - 8)
        text.append(said if len(said) <= room else f"{said[:room].rpartition(' ')[0]} …", "bold")
        self.query_one("#sides", Static).update(text)

    def on_line_selected(self, message: messages.LineSelected) -> None:
        """Show what is known of it."""
        if self.comparison is not None:
            self.query_one(CompareDetail).show(self.comparison, message.line)

    def on_lines_wanted(self, message: messages.LinesWanted) -> None:
        """Open or close a line."""
        self.wanted = replace(self.wanted, turned={**self.wanted.turned, message.key: message.is_open})
        self._put_in_lines()

    def on_line_activated(self, message: messages.LineActivated) -> None:
        """Show how the values of a tensor differ."""
        comparison, line = self.comparison, message.line
        if comparison is None or not isinstance(line, EntryLine):
            return
        pair = comparison.pair(line.entry)
        if pair is None:
            side = "A" if comparison.flags[line.entry] & Flag.ONLY_A else "B"
            self.app.notify(f"Only {side} has this tensor: there is nothing to subtract.", markup=False)
        elif pair.reshaped and not pair.transposed:
            self.app.notify("The shapes differ: there is nothing to subtract.", markup=False)
        else:
            self.app.push_screen(DifferenceScreen(comparison, line, self.request, self._inspectors(comparison)))

    def _inspectors(self, comparison: ComparedEntries) -> tuple[Inspector, Inspector]:
        """Return the inspectors of both files, which stay open."""
        if self._opened is None:
            a, b = comparison.found.a.checkpoint, comparison.found.b.checkpoint
            self._opened = Inspector(self.path, a), Inspector(self.other, b)
        return self._opened

    def on_filter_changed(self, message: messages.FilterChanged) -> None:
        """Show only what fits."""
        self.wanted = replace(self.wanted, text=message.text)
        self._put_in_lines()

    def command(self) -> str:
        """Return the equal command line."""
        compared = self.settings.deep or (self.comparison is not None and self.comparison.measuring)
        return command_line.diff(self.path, self.other, values=compared, root=self.settings.root)

    # keys

    def action_filter(self) -> None:
        """Type a filter."""
        self.query_one(FilterBar).open()

    def action_values(self) -> None:
        """Compare the values, or stop that."""
        comparison = self.comparison
        if comparison is None:
            return
        if self._measuring is not None:
            self._measuring.cancel()
            self.query_one(TitleBar).say(state="stopping…")
        elif comparison.found.compared:
            self.app.notify("All values are compared.", markup=False)
        else:
            comparison.measuring = True
            self.query_one(CompareView).redraw()
            self._measuring = self.run_worker(
                lambda: self.comparing.values(comparison), group="values", exclusive=True, thread=True
            )

    def action_back(self) -> None:
        """Go back, where this was opened from another screen."""
        self.leave()

    def action_show(self) -> None:
        """Show other kinds of change."""
        show = next_show(self.wanted.show)
        while show in SHOWN and not any(number and kind in SHOWN[show] for kind, number in self._counts.items()):
            show = next_show(show)
        self.wanted = replace(self.wanted, show=show)
        self._put_in_lines()

    def action_order(self) -> None:
        """Order lines by module, or the largest change first."""
        by_module = self.wanted.order is LineOrder.MODULES
        self.wanted = replace(self.wanted, order=LineOrder.MAGNITUDE if by_module else LineOrder.MODULES)
        self._put_in_lines()

    def action_fit(self) -> None:
        """Compare A with the target that the options name, or else with B."""
        if self.comparison is None:
            return
        target = self.target
        checkpoint = self.comparison.found.a.checkpoint

        def opened(path: str) -> BrowserScreen:
            return BrowserScreen(path, target.settings, target)

        self.app.push_screen(FitScreen(self.path, checkpoint, target.settings, target, opened))

    def action_help(self) -> None:
        """Show all keys, and the language of the filter."""
        self.app.push_screen(HelpScreen(self.active_bindings))


def _heading(side: Side, width: int) -> str:
    """Return what a side is on one line, as far as there is room."""
    said, *more = [piece for line in heading(side.checkpoint) for piece in line.split(" · ")]
    for piece in more:
        if len(said) + 3 + len(piece) > width:
            break
        said = f"{said} · {piece}"
    return fit_middle(said, width).rstrip()
