"""The main screen: contents, what is under the cursor, and what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Footer

from ckptdoctor.checkpoint import addresses
from ckptdoctor.engine.diagnose import worst_first
from ckptdoctor.engine.settings import Settings
from ckptdoctor.findings import Finding
from ckptdoctor.report.escape import escape
from ckptdoctor.report.numbers import count, plural, size
from ckptdoctor.tui import messages
from ckptdoctor.tui.background import Background
from ckptdoctor.tui.examining import Examination
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.models.book import Book
from ckptdoctor.tui.models.filtering import parse
from ckptdoctor.tui.models.table import Rows
from ckptdoctor.tui.screens.damaged import DamagedScreen
from ckptdoctor.tui.screens.help import HelpScreen
from ckptdoctor.tui.widgets.detail import Detail
from ckptdoctor.tui.widgets.filter_bar import FilterBar
from ckptdoctor.tui.widgets.findings import FindingsView
from ckptdoctor.tui.widgets.list_view import ListView
from ckptdoctor.tui.widgets.title_bar import TitleBar, counted
from ckptdoctor.tui.widgets.tree_view import TreeView

# from how many columns and lines on the screen is of this class, which app.tcss lays out
_WIDTHS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]
_HEIGHTS = [(0, "-low"), (30, "-tall")]


class BrowserScreen(Screen[None], Background):
    """One file, from the first byte read to the last finding."""

    HORIZONTAL_BREAKPOINTS = _WIDTHS
    VERTICAL_BREAKPOINTS = _HEIGHTS
    AUTO_FOCUS = "TreeView"
    BINDINGS: ClassVar[list[BindingType]] = [
        key(
            "slash",
            "filter",
            "filter",
            "Show only what fits: names, dtypes, shapes, sizes, findings",
            show=True,
            display="/",
        ),
        key("t", "switch", "list", "All tensors in one list, or the tree again", show=True),
        key("tab", "app.focus_next", "next pane", "To the next pane"),
        key("shift+tab", "app.focus_previous", "previous pane", "To the pane before"),
        key("e", "examine_deeply", "deep", "Read every byte: checksums and values", show=True),
        key("question_mark,f1", "help", "help", "All keys, and the language of the filter", show=True, display="?"),
    ]

    def __init__(self, path: str, settings: Settings) -> None:
        super().__init__()
        self.path = path
        self.settings = settings
        self.book: Book | None = None
        self.examination: Examination | None = None
        self.findings: list[Finding] = []

    def compose(self) -> ComposeResult:
        """The panes; which stand side by side is for app.tcss to say."""
        yield TitleBar([escape(addresses.shown(self.path))], id="title")
        yield FilterBar(id="filter")
        with Container(id="panes"):
            with ContentSwitcher(initial="tree", id="contents"):
                yield TreeView(id="tree")
                yield ListView(id="list")
            yield Detail(id="detail")
        yield FindingsView(id="findings")
        yield Footer(compact=False, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one("#contents").border_title = "contents"
        self.query_one("#findings").border_title = "findings"
        self.query_one(FilterBar).display = False
        self.examine(self.settings)

    def examine(self, settings: Settings) -> None:
        """Examine the file, again where that was done before; its contents stay on the screen."""
        self.findings = []
        self.examination = Examination(self, self.path, settings, self.book)
        self.run_worker(self.examination.run, group="examination", exclusive=True, thread=True)

    # what the examination says

    def on_file_recognised(self, message: messages.FileRecognised) -> None:
        """Say what it is."""
        container = message.container
        pieces = [
            escape(addresses.shown(self.path)),
            escape(container.format) or "unknown contents",
            size(container.size),
        ]
        self.query_one(TitleBar).say(what=pieces)

    def on_book_opened(self, message: messages.BookOpened) -> None:
        """Show the contents."""
        self.book = message.book
        self.query_one(TreeView).show(self.book)
        self.query_one(ListView).show(self.book)
        self.query_one(TitleBar).say(state="examining…")
        self._tell_order()
        self.call_after_refresh(self._painted)

    def _painted(self) -> None:
        """The contents are on the screen: now the rules may take the processor."""
        if self.examination is not None:
            self.examination.painted.set()

    def on_finding_found(self, message: messages.FindingFound) -> None:
        """Add a finding."""
        self.findings.append(message.finding)
        if self.book is not None and message.finding not in self.book.marks.findings:
            self.book.marks.add(message.finding, message.rows)
        self._show_findings(list(self.findings))

    def on_progressed(self, message: messages.Progressed) -> None:
        """Say how far it is."""
        progress = message.progress
        share = 100 * progress.done // max(1, progress.total)
        self.query_one(TitleBar).say(state=f"reading {progress.what}: {share} % of {size(progress.total)}")

    def on_examination_ended(self, message: messages.ExaminationEnded) -> None:
        """Put the worst first; where nothing could be read, show why instead."""
        report = message.report
        if report.container is None:  # not even opened: that is for the command line to say
            self.app.exit(return_code=2, message=Text(f"error: {escape(report.error or 'it cannot be opened')}"))
            return
        self.findings = worst_first(self.findings)
        self._show_findings(self.findings)
        self.query_one(TitleBar).say(what=message.what, state="" if self.findings else "nothing found")
        if self.book is None:
            self.app.switch_screen(DamagedScreen(report))

    def on_examination_failed(self, message: messages.ExaminationFailed) -> None:
        """Nothing can be shown, or nothing more."""
        self.query_one(TitleBar).say(state="")
        if self.book is None:
            self.app.exit(return_code=2, message=Text(f"error: {escape(message.sentence)}"))
        else:
            self.app.notify(message.sentence, severity="error", markup=False)

    def _show_findings(self, findings: list[Finding]) -> None:
        view = self.query_one(FindingsView)
        view.show(findings)
        self.query_one(TitleBar).say(counts=counted(findings))
        self.query_one(TreeView).redraw()
        self.query_one(ListView).redraw()

    # what is chosen

    def on_item_selected(self, message: messages.ItemSelected) -> None:
        """Show what is known of it."""
        if self.book is not None:
            self.query_one(Detail).show_item(self.book, message.item)

    def on_finding_selected(self, message: messages.FindingSelected) -> None:
        """Show all that the finding says."""
        self.query_one(Detail).show_finding(message.finding)

    def on_item_activated(self, message: messages.ItemActivated) -> None:
        """Go into the pane with its details."""
        self.query_one(Detail).focus()

    def on_jump_wanted(self, message: messages.JumpWanted) -> None:
        """Go to the thing at a key path, in tree or list."""
        if self.book is None:
            return
        view = self._contents()
        view.focus()
        view.reveal(message.path)

    def on_order_changed(self, message: messages.OrderChanged) -> None:
        """Say how the lines follow each other."""
        self._tell_order()

    # filter

    def on_filter_changed(self, message: messages.FilterChanged) -> None:
        """Find out which tensors are left."""
        book = self.book
        if book is not None:
            query = parse(message.text)
            self.compute(lambda: query.rows(book.table, book.marks), self._narrow, "filter", len(book.table))

    def _narrow(self, rows: Rows | None) -> None:
        assert self.book is not None
        self.query_one(TreeView).narrow(rows)
        self.query_one(ListView).narrow(rows)
        said = "" if rows is None else f"{count(len(rows))} of {plural(len(self.book.table), 'tensor')}"
        self.query_one(FilterBar).say(said)

    # keys

    def action_filter(self) -> None:
        """Type a filter."""
        self.query_one(FilterBar).open()

    def action_switch(self) -> None:
        """All tensors in one list, or the tree again."""
        switcher = self.query_one("#contents", ContentSwitcher)
        switcher.current = "list" if switcher.current == "tree" else "tree"
        self._contents().focus()
        self._tell_order()

    def action_examine_deeply(self) -> None:
        """Read every byte."""
        if self.book is not None:
            self.examine(replace(self.settings, deep=True))

    def action_help(self) -> None:
        """All keys, and the language of the filter."""
        self.app.push_screen(HelpScreen(self.active_bindings))

    def _contents(self) -> TreeView | ListView:
        current = self.query_one("#contents", ContentSwitcher).current
        return self.query_one(ListView) if current == "list" else self.query_one(TreeView)

    def _tell_order(self) -> None:
        self.query_one("#contents").border_subtitle = self._contents().order_in_words
