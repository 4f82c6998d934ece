"""Shows a file while it is examined: contents as soon as headers are read, then findings as they come."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from time import monotonic

from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widgets import ContentSwitcher

from ckptdoctor.checkpoint import Mapping, Node, Sequence, children
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.findings import FileReport, Finding
from ckptdoctor.remote import addresses
from ckptdoctor.rendering.contents import value
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.fates import damaged_file
from ckptdoctor.rendering.numbers import size
from ckptdoctor.rendering.shell import with_path
from ckptdoctor.rendering.wrapping import abridged
from ckptdoctor.tui import messages
from ckptdoctor.tui.background import StillReading
from ckptdoctor.tui.models import history
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.pace import Pace, rough_duration
from ckptdoctor.tui.screens import STACKED, WIDTHS
from ckptdoctor.tui.screens.panes import PanedScreen
from ckptdoctor.tui.widgets.bars import KeyBar, TitleBar, counted
from ckptdoctor.tui.widgets.detail import Detail
from ckptdoctor.tui.widgets.filter_bar import FilterBar
from ckptdoctor.tui.widgets.findings import FindingsView
from ckptdoctor.tui.widgets.list_view import ListView
from ckptdoctor.tui.widgets.tree_view import TreeView
from ckptdoctor.tui.workers import Examination, SharedTarget
from ckptdoctor.wording import format_name

# what keys open is imported once the contents are on the screen, in a thread
_OPENED_LATER = tuple([f"ckptdoctor.tui.screens.{name}" for name in ("tensor", "help", "damaged", "fit")])
# why something was not read that reading every byte is not about
_ERROR = 100  # characters of an error below the findings
_NEVER_READ = ("--model, --like", "there are none")


class ExaminedScreen(PanedScreen[None], StillReading):
    """One file, from the first byte read to the last finding."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = STACKED
    AUTO_FOCUS = "TreeView"

    def __init__(self, path: str, settings: Settings, target: SharedTarget | None = None) -> None:
        super().__init__()
        self.path = path
        self.settings = settings
        self.target = target or SharedTarget(settings, path)
        self.opened: OpenedCheckpoint | None = None
        self.examination: Examination | None = None
        self.findings: list[Finding] = []
        self.report: FileReport | None = None
        self._reported: dict[tuple[str, str], Finding | None] = {}  # what became of what was found last time
        self._pace = Pace()
        self._fit = ""  # how much of the target fits, in few words
        self._has_begun = False  # the examination: whatever it is held against has been read

    def compose(self) -> ComposeResult:
        """Yield the panes; app.tcss decides which are side by side."""
        yield TitleBar([escape(addresses.shown(self.path)), *_size(self.path)], id="title")
        yield FindingsView(id="findings")
        yield FilterBar(lambda: self._contents().focus(), id="filter")
        with Container(id="panes"):
            with ContentSwitcher(initial="tree", id="contents"):
                yield TreeView(id="tree")
                yield ListView(id="list")
            yield Detail(id="detail")
        yield KeyBar()

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one("#contents").border_title = "contents"
        self.query_one("#findings").border_title = "findings"
        self.query_one(FilterBar).display = False
        self.query_one(TreeView).say_nothing("Reading the headers: names, shapes, dtypes. No values are read.")
        self._began = monotonic()
        self._waiting = self.set_interval(1, self._say_how_long)
        self.examine(self.settings)

    def _say_how_long(self) -> None:
        """Show that it goes on, while there are no contents yet."""
        if self.opened is not None:
            self._waiting.stop()
            return
        seconds = int(monotonic() - self._began)
        self.query_one(TitleBar).say(state=f"reading headers… {rough_duration(seconds)}")

    def examine(self, settings: Settings) -> None:
        """Examine the file, again where that was done before; its contents stay on the screen."""
        settings = replace(settings, pictures=settings.deep)  # what is read has columns
        self.findings = []
        self.query_one(FindingsView).say_nothing("No problems found so far.")
        self.examination = Examination(self, self.path, settings, self.opened, self.target)
        self.run_worker(self.examination.run, group="examination", exclusive=True, thread=True)

    # what the examination says

    def on_file_recognised(self, message: messages.FileRecognised) -> None:
        """Say what it is."""
        self._has_begun = True
        container = message.container
        pieces = [
            escape(addresses.shown(self.path)),
            escape(format_name(container.format)) or "unknown contents",
            size(container.size),
        ]
        self.query_one(TitleBar).say(what=pieces)

    def on_checkpoint_opened(self, message: messages.CheckpointOpened) -> None:
        """Show the contents."""
        self.opened = message.opened
        self.query_one(TreeView).show(self.opened)
        self.query_one(ListView).show(self.opened)
        self.query_one(TreeView).say_nothing(_without_rows(self.opened.checkpoint.tree))
        self.query_one(ListView).say_nothing("This checkpoint has no tensors.")
        self.query_one(TitleBar).say(state="reading the target…" if self.target.is_named else "examining…")
        self._tell_order()
        self.refresh()  # now: only what the screen itself knows of is drawn before what is to come after a refresh
        self.call_after_refresh(self._painted)
        self.filled.set()

    def _painted(self) -> None:
        """Let the rules have the processor and prepare what keys open, now that the contents are on the screen."""
        if self.examination is not None:
            self.examination.painted.set()
        self.run_worker(lambda: _when_there_is_time(self.path), group="imports", thread=True)

    def on_finding_found(self, message: messages.FindingFound) -> None:
        """Add a finding, with the advice that the last report gave for it: that knows what else is wrong."""
        found = message.finding
        finding = self._reported.get(_same(found), found)
        if finding is None:  # the last report left it out
            return
        self.findings.append(finding)
        if self.opened is not None and finding not in self.opened.badges.findings:
            self.opened.badges.add(finding, message.rows)
        self._show_findings(list(self.findings))

    def on_progressed(self, message: messages.Progressed) -> None:
        """Say how far it is."""
        if self.examination is not None and not self.examination.stopping:
            self.query_one(TitleBar).say(state=" · ".join([*self._pace.said(message.progress), "esc stops"]))

    def on_values_measured(self, message: messages.ValuesMeasured) -> None:
        """Give the contents columns of what the values are."""
        if self.opened is not None:
            self.opened.values = message.values.tensors
            self.query_one(TreeView).redraw()
            self.query_one(ListView).redraw()
            self._tell_cursor()

    def on_examination_ended(self, message: messages.ExaminationEnded) -> None:
        """Show what the report says, the worst first; where nothing could be read, show why instead."""
        report = message.report
        if report.container is None:  # not even opened
            self._fail(report.error or f"{escape(addresses.shown(self.path))} cannot be opened.")
            return
        self.report = report
        self.findings = list(report.findings)
        if self.opened is not None:
            self.opened.badges.take(report.findings, message.rows)
        reported = {_same(each): each for each in report.findings}
        found = self.examination.found if self.examination is not None else []
        self._reported = {_same(each): reported.get(_same(each)) for each in found}
        if report.coverage is not None:
            from ckptdoctor.tui.models.fitted import fits

            self._fit = f" · {fits(report.coverage)} · c"
        self._show_findings(self.findings)
        self._tell_unread(report)
        well = not self.findings and report.error is None
        self.query_one(TitleBar).say(what=message.what, state="no problems found" if well else "")
        if self.opened is None:
            from ckptdoctor.tui.screens.damaged import DamagedScreen

            self.app.switch_screen(DamagedScreen(report, self.path, self._of))
        else:
            if report.error is not None:
                self.app.notify(escape(report.error), severity="error", markup=False)
            self.query_one(Detail).read_at_once()

    def on_file_replaced(self, message: messages.FileReplaced) -> None:
        """Show the new contents as a whole, as opening the file again does."""
        self.reopen()

    def reopen(self) -> None:
        """Put a new screen of the same file in the place of this one, and of all that was opened from it."""
        name = escape(os.path.basename(os.path.normpath(self.path)))
        if self.uncover():
            self.app.switch_screen(self._of(self.path))
            said = f"{name} was replaced since it was opened. These are its new contents."
            self.app.notify(said, severity="warning", markup=False)

    def on_examination_failed(self, message: messages.ExaminationFailed) -> None:
        """Leave with the reason, or show it where there are contents already."""
        self._fail(message.sentence)

    def _fail(self, sentence: str) -> None:
        """Say why there are no contents, and leave; or why there is nothing more, and show what was known before."""
        self.query_one(TitleBar).say(state="")
        if self.opened is None or not self._has_begun:
            self.give_up(sentence)
            return
        if self.report is not None:
            self.findings = list(self.report.findings)
            self._show_findings(self.findings)
            self.query_one(FindingsView).say_nothing("No problems found.")
        self.app.notify(sentence, severity="error", markup=False)

    def _show_findings(self, findings: list[Finding]) -> None:
        view = self.query_one(FindingsView)
        view.show(findings)
        self.refresh_bindings()  # some keys need a finding
        self.query_one("#findings").border_title = Content(f"findings{' · n next' if findings else ''}{self._fit}")
        self.query_one(TitleBar).say(counts=counted(findings))
        self.query_one(TreeView).redraw()
        self.query_one(ListView).redraw()
        if findings:
            self._tell_cursor()

    def _tell_unread(self, report: FileReport) -> None:
        """Say what was not examined, and what would do it; after a deep examination what could not be read, and why."""
        view = self.query_one(FindingsView)
        if report.error is not None:
            view.say_nothing("Not everything could be examined. No problems found so far.")
            view.border_subtitle = Content(abridged(escape(report.error), _ERROR))
            return
        deep = self.examination is not None and self.examination.settings.deep
        if report.interrupted:
            view.say_nothing("Stopped early. No problems found so far.")
        else:
            values = "Every value was read." if deep else "Values not checked yet: press e."
            view.say_nothing(f"✓ No problems found. {values}", "success")
        left = [f"{each.what} ({each.why})" for each in report.skipped if each.why not in _NEVER_READ]
        said = f"not read: {'; '.join(left)}" if left else "every byte was read"
        if not deep:
            skipped = [each for each in report.skipped if each.why != "there are none"]
            unread = [f"{each.what} ({'e' if each.why == '--deep' else each.why})" for each in skipped]
            said = f"not examined: {', '.join(unread)}" if unread else ""
        view.border_subtitle = Content(escape(said))
        if deep and left:
            self.app.notify(escape(f"{said[:1].upper()}{said[1:]}."), markup=False)

    # what is shown

    def on_item_selected(self, message: messages.ItemSelected) -> None:
        """Show what is known of it."""
        if self.opened is not None:
            self.query_one(Detail).show_item(self.opened, message.item)

    def on_finding_selected(self, message: messages.FindingSelected) -> None:
        """Show all that the finding says."""
        advice = with_path(message.finding.advice, self.path)
        is_damaged = damaged_file(self.path, message.finding) is not None
        self.query_one(Detail).show_finding(
            replace(
                message.finding,
                advice=advice,
                commands=tuple([with_path(each, self.path) for each in message.finding.commands]),
            ),
            "Press s to see what is intact in the file and to save it." if is_damaged else "",
        )

    def on_order_changed(self, message: messages.OrderChanged) -> None:
        """Say how the lines follow each other, and what is under the cursor now that they do."""
        self._tell_order()
        self._tell_cursor()

    def _tell_cursor(self) -> None:
        """Show again what is known of the thing under the cursor: that has changed, or more is known."""
        if not self.query_one(FindingsView).has_focus:
            self._contents().selected(self._contents().cursor)

    def _tell_order(self) -> None:
        self.query_one("#contents").border_subtitle = self._contents().order_in_words

    def _contents(self) -> TreeView | ListView:
        current = self.query_one("#contents", ContentSwitcher).current
        return self.query_one(ListView) if current == "list" else self.query_one(TreeView)

    def _of(self, path: str) -> Screen[None]:
        """Return the screen of another file, which should fit the same."""
        return type(self)(path, self.settings, self.target)


def _when_there_is_time(path: str) -> None:
    """Import what keys open, and remember that the file was opened."""
    for name in _OPENED_LATER:
        import_module(name)
    history.remember(path)


def _size(path: str) -> list[str]:
    """Return the size of a file on this machine, which is known before anything is read."""
    return [size(os.path.getsize(path))] if os.path.isfile(path) else []


def _without_rows(tree: Node) -> str:
    """Return what a checkpoint holds that has nothing to list: no more than one value."""
    if isinstance(tree, (Mapping, Sequence)) and not next(children(tree), None):
        return "This checkpoint is empty."
    return f"This checkpoint is one value: {value(tree)}"


def _same(finding: Finding) -> tuple[str, str]:
    """Return what a finding has in common with what a report makes of it."""
    return finding.code, finding.message
