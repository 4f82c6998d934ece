"""Draws the main screen: contents, what is under the cursor, and what is wrong."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widgets import ContentSwitcher

from ckptdoctor.checkpoint import show_path
from ckptdoctor.checkpoint.expectation import Coverage
from ckptdoctor.diagnose.findings import worst_first
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from ckptdoctor.filters.language import parse
from ckptdoctor.filters.suggestions import better_filter
from ckptdoctor.filters.table import Rows
from ckptdoctor.findings import FileReport, Finding
from ckptdoctor.remote import addresses
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.fates import damaged_file
from ckptdoctor.rendering.numbers import count, plural, size
from ckptdoctor.rendering.shell import with_path
from ckptdoctor.tui import messages
from ckptdoctor.tui.background import OPENS, StillReading
from ckptdoctor.tui.keys import PANES, key
from ckptdoctor.tui.models import command_line, history
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.pace import Pace, rough_duration
from ckptdoctor.tui.models.tree import TreeItem
from ckptdoctor.tui.screens import STACKED, WIDTHS
from ckptdoctor.tui.widgets.bars import KeyBar, TitleBar, counted
from ckptdoctor.tui.widgets.detail import Detail
from ckptdoctor.tui.widgets.filter_bar import FilterBar
from ckptdoctor.tui.widgets.findings import FindingsView
from ckptdoctor.tui.widgets.list_view import ListView
from ckptdoctor.tui.widgets.tree_view import TreeView
from ckptdoctor.tui.workers import Examination, SharedTarget

if TYPE_CHECKING:
    from ckptdoctor.examine.offers import Offer

# what keys open is imported once the contents are on the screen, in a thread
_OPENED_LATER = tuple([f"ckptdoctor.tui.screens.{name}" for name in ("tensor", "help", "damaged", "fit")])
# why something was not read that reading every byte is not about
_NEVER_READ = ("--model, --like", "there are none")


class BrowserScreen(Screen[None], StillReading):
    """One file, from the first byte read to the last finding."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = STACKED
    AUTO_FOCUS = "TreeView"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("slash", "filter", "filter", "Filter by name, dtype, shape, size or finding", show=True),
        key("t", "switch", "list", "Switch between the tree and a list of all tensors", show=True),
        key("n", "next_finding(1)", "next finding", "Go to the next finding and what it is about"),
        key("N", "next_finding(-1)", "finding before", "Go to the previous finding and what it is about"),
        key("b", "bookmark", "bookmark", "Set a bookmark here, or remove it; bookmarks are kept"),
        key("B", "next_bookmark", "next bookmark", "Go to the next bookmark"),
        *PANES,
        key("e", "examine_deeply", "deep", "Read every byte: checksums and values", show=True),
        key("f", "repair", "repair", "Choose repairs, see the plan, write a repaired file", show=True),
        key("s", "salvage", "salvage", "Show what is intact in a damaged file, and save it"),
        key("c", "fit", "fit", "Show how much of it fits the target of --model, --config or --like"),
        key("D", "compare", "compare", "Compare with another file in the folder"),
        key("z", "maximise", "maximise", "Maximise the pane, or restore it"),
        key("escape", "stop", "stop or back", "Stop reading, clear the filter, or go back"),
        key("question_mark,f1", "help", "help", "All keys, and the language of the filter", show=True),
    ]

    def __init__(self, path: str, settings: Settings, target: SharedTarget | None = None) -> None:
        super().__init__()
        self.path = path
        self.settings = settings
        self.target = target or SharedTarget(settings, path)
        self.opened: OpenedCheckpoint | None = None
        self.examination: Examination | None = None
        self.findings: list[Finding] = []
        self.report: FileReport | None = None
        self._pace = Pace()
        self._alone = False  # whether one pane has all the room
        self._fit = ""  # how much of the target fits, in few words
        self._chosen: int | None = None  # the finding that n has come to
        self._trail = history.Trail()
        self._has_begun = False  # the examination: whatever it is held against has been read

    def compose(self) -> ComposeResult:
        """The panes; which are side by side is for app.tcss to say."""
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
            escape(container.format) or "unknown contents",
            size(container.size),
        ]
        self.query_one(TitleBar).say(what=pieces)

    def on_checkpoint_opened(self, message: messages.CheckpointOpened) -> None:
        """Show the contents."""
        self.opened = message.opened
        self.query_one(TreeView).show(self.opened)
        self.query_one(ListView).show(self.opened)
        self.query_one(TreeView).say_nothing("This checkpoint is empty.")
        self.query_one(ListView).say_nothing("This checkpoint has no tensors.")
        self.query_one(TitleBar).say(state="reading the target…" if self.target.is_named else "examining…")
        self._tell_order()
        self.refresh()  # now: only what the screen itself knows of is drawn before what is to come after a refresh
        self.call_after_refresh(self._painted)
        self.filled.set()

    def _painted(self) -> None:
        """The contents are on the screen: now the rules may take the processor, and what keys open is made ready."""
        if self.examination is not None:
            self.examination.painted.set()
        self.run_worker(lambda: _when_there_is_time(self.path), group="imports", thread=True)

    def on_finding_found(self, message: messages.FindingFound) -> None:
        """Add a finding."""
        self.findings.append(message.finding)
        if self.opened is not None and message.finding not in self.opened.badges.findings:
            self.opened.badges.add(message.finding, message.rows)
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
        """Put the worst first; where nothing could be read, show why instead."""
        report = message.report
        if report.container is None:  # not even opened: that is for the command line to say
            self.app.exit(return_code=2, message=Text(f"error: {escape(report.error or 'it cannot be opened')}"))
            return
        self.report = report
        self.findings = worst_first(self.findings)
        if report.coverage is not None:
            from ckptdoctor.tui.models.fitted import fits

            self._fit = f" · {fits(report.coverage)} · c"
        self._show_findings(self.findings)
        self._tell_unread(report)
        self.query_one(TitleBar).say(what=message.what, state="" if self.findings else "no problems found")
        if self.opened is None:
            from ckptdoctor.tui.screens.damaged import DamagedScreen

            self.app.switch_screen(DamagedScreen(report, self.path, self._of))

    def on_examination_failed(self, message: messages.ExaminationFailed) -> None:
        """Nothing can be shown, or nothing more."""
        self.query_one(TitleBar).say(state="")
        if self.opened is None or not self._has_begun:
            self.app.exit(return_code=2, message=Text(f"error: {_lines(message.sentence)}"))
        else:
            self.app.notify(message.sentence, severity="error", markup=False)

    def _show_findings(self, findings: list[Finding]) -> None:
        view = self.query_one(FindingsView)
        view.show(findings)
        self.query_one("#findings").border_title = Content(f"findings{' · n next' if findings else ''}{self._fit}")
        self.query_one(TitleBar).say(counts=counted(findings))
        self.query_one(TreeView).redraw()
        self.query_one(ListView).redraw()
        if findings:
            self._tell_cursor()

    # what is chosen

    def on_item_selected(self, message: messages.ItemSelected) -> None:
        """Show what is known of it."""
        if self.opened is not None:
            self.query_one(Detail).show_item(self.opened, message.item)

    def on_finding_selected(self, message: messages.FindingSelected) -> None:
        """Show all that the finding says."""
        advice = with_path(message.finding.advice, self.path)
        if damaged_file(self.path, message.finding) is not None:
            advice += " Press s to see what is intact in the file and to save it."
        self.query_one(Detail).show_finding(
            replace(
                message.finding,
                advice=advice,
                commands=tuple([with_path(each, self.path) for each in message.finding.commands]),
            )
        )

    def on_item_activated(self, message: messages.ItemActivated) -> None:
        """Show the values of a tensor; of anything else, go into the pane with its details."""
        if isinstance(message.item, int):
            self._open(message.item)
        else:
            self.query_one(Detail).focus()

    def on_item_wanted(self, message: messages.ItemWanted) -> None:
        """Go to a layer that was chosen in the pane at the right."""
        self._trail.leave(self._under_cursor())
        self._contents().focus()
        self._show_item(message.item)

    def on_element_wanted(self, message: messages.ElementWanted) -> None:
        """Open the tensor under the cursor at the value that was clicked on."""
        item = self._under_cursor()
        if isinstance(item, int):
            self._open(item, message.index)

    def _open(self, row: int, at: tuple[int, ...] | None = None) -> None:
        from ckptdoctor.tui.screens.tensor import TensorScreen

        if self.opened is not None:
            self.app.push_screen(TensorScreen(self.opened, row, at))

    def on_finding_activated(self, message: messages.FindingActivated) -> None:
        """Go to the first thing that it names, and there."""
        self._go_to(message.finding, focus=True)

    def action_next_finding(self, by: int) -> None:
        """Choose another finding, and show what it is about."""
        view = self.query_one(FindingsView)
        if view.findings:
            at = 0 if by > 0 else -1
            self._chosen = (at if self._chosen is None else self._chosen + by) % len(view.findings)
            view.cursor = self._chosen
            self._go_to(view.findings[view.cursor], focus=False)

    def _go_to(self, finding: Finding, *, focus: bool) -> None:
        """Show the first thing that it names, in tree or list; where none is there, the file that is damaged."""
        named = finding.keys or (() if finding.location.path is None else (finding.location.path,))
        if self.opened is None:
            return
        there = self.opened.first_of(named)
        if not focus and there is None:
            self.query_one(FindingsView).selected(self.query_one(FindingsView).cursor)
        elif there is None and damaged_file(self.path, finding) is not None:
            self._salvage(finding)
        elif not named:
            self.app.notify("This finding is about the file as a whole.", markup=False)
        else:
            view = self._contents()
            self._trail.leave(self._under_cursor())
            if focus or self.query_one(FindingsView).has_focus:
                view.focus()
            view.reveal(named[0] if there is None else there)
            if there is None:
                self.app.notify(escape(f"{show_path(named[0])} is not in the checkpoint."), markup=False)

    # where somebody has been

    def wander(self, by: int) -> bool:
        """Put the cursor back on what it was on before it was taken elsewhere, or forward again."""
        item = self._trail.wander(by, self._under_cursor())
        if item is not None:
            self._show_item(item)
        return item is not None

    def _show_item(self, item: TreeItem) -> None:
        view = self._contents()
        assert self.opened is not None
        if isinstance(view, TreeView):
            view.reveal_item(item)
        elif isinstance(item, int):
            view.reveal(self.opened.table.tensors[item].path)

    def action_bookmark(self) -> None:
        """Put a bookmark on what the cursor is on, or take it away."""
        item, opened = self._under_cursor(), self.opened
        if opened is None or item is None:
            return
        name = opened.name_of(item)
        if name in opened.bookmarks:
            opened.bookmarks.remove(name)
        else:
            opened.bookmarks.append(name)
        self.query_one(TreeView).redraw()
        self.query_one(ListView).redraw()
        kept = list(opened.bookmarks)
        self.run_worker(lambda: history.keep_bookmarks(self.path, kept), group="bookmarks", thread=True)

    def action_next_bookmark(self) -> None:
        """Go to the next bookmark, in the order in which they were put."""
        item, opened = self._under_cursor(), self.opened
        if opened is None or item is None:
            return
        marked = opened.bookmarks
        if not marked:
            self.app.notify("There are no bookmarks yet: press b to set one at the cursor.", markup=False)
            return
        here = opened.name_of(item)
        name = marked[(marked.index(here) + 1) % len(marked) if here in marked else 0]

        def go(found: TreeItem | None) -> None:
            if found is None:
                self.app.notify(f"{escape(name)} is no longer in the checkpoint.", markup=False)
            else:
                self._trail.leave(self._under_cursor())
                self._show_item(found)

        self.compute(lambda: opened.item_called(name), go, "bookmark", len(opened.table))

    def on_order_changed(self, message: messages.OrderChanged) -> None:
        """Say how the lines follow each other, and what is under the cursor now that they do."""
        self._tell_order()
        self._tell_cursor()

    def _tell_cursor(self) -> None:
        """Show again what is known of the thing under the cursor: that has changed, or more is known."""
        if not self.query_one(FindingsView).has_focus:
            self._contents().selected(self._contents().cursor)

    # filter

    def on_filter_changed(self, message: messages.FilterChanged) -> None:
        """Find out which tensors are left."""
        opened = self.opened
        if opened is not None:
            text = message.text

            def work() -> tuple[Rows | None, str]:
                rows = parse(text).rows(opened.table, opened.badges)
                return rows, "" if rows is None or len(rows) else better_filter(text, opened.table, opened.badges)

            self.compute(work, self._narrow, "filter", len(opened.table))

    def _narrow(self, found: tuple[Rows | None, str]) -> None:
        assert self.opened is not None
        rows, better = found
        self.query_one(TreeView).narrow(rows)
        self.query_one(ListView).narrow(rows)
        if rows is not None and not len(rows):
            self.query_one(Detail).clear()
            for view in (self.query_one(TreeView), self.query_one(ListView)):
                said = f" Did you mean {escape(better)}?" if better else ""
                view.say_nothing(f"No tensor matches this filter.{said}")
        said = "" if rows is None else f"{count(len(rows))} of {plural(len(self.opened.table), 'tensor')}"
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
        if self.opened is not None:
            self.examine(replace(self.settings, deep=True))

    def action_stop(self) -> None:
        """Stop reading every byte; where nothing is read, show what a filter hides."""
        if self.examination is not None and self.examination.stop():
            self.query_one(TitleBar).say(state="stopping…")
        elif self.query_one(FilterBar).text:
            self.query_one(FilterBar).forget()
        else:
            self.leave()

    def action_compare(self) -> None:
        """Choose what to compare with."""
        if addresses.is_address(self.path):
            self.app.notify(
                "This file is not on this machine. To compare it, start browse with both paths.", markup=False
            )
        else:
            self.post_message(messages.ComparisonWanted(self.path, self.settings))

    def action_maximise(self) -> None:
        """Give the pane that has the focus all the room, or share it again."""
        panes = [self.query_one(name) for name in ("#findings", "#contents", "#detail")]
        self._alone = not self._alone
        for pane in panes:
            pane.display = not self._alone or pane.has_focus_within or pane.has_focus

    def _tell_unread(self, report: FileReport) -> None:
        """Say what was not examined, and what would do it; after a deep examination what could not be read, and why."""
        view = self.query_one(FindingsView)
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

    def action_repair(self) -> None:
        """Choose repairs, when all rules have been asked; while every byte is read, of what was found until now."""
        examination = self.examination
        if self.opened is None or examination is None:
            return
        if addresses.is_address(self.path):
            self.app.notify("Only files on this machine can be repaired: download it first.", markup=False)
            return
        findings, report = list(self.findings), self.report

        def work() -> list[Offer]:
            from ckptdoctor.examine.offers import offers

            # planning takes long to import and nothing else needs it: here, so that ``_offer`` finds it ready
            import_module("ckptdoctor.tui.screens.repair")
            if not examination.settings.deep:
                examination.ended.wait()
                return offers(worst_first(examination.found), _coverage(examination.report))
            return offers(findings, _coverage(report))

        self.compute(work, self._offer, OPENS)

    def _offer(self, offered: list[Offer]) -> None:
        from ckptdoctor.tui.screens.repair import RepairScreen

        if not offered:
            ended = self.examination is None or self.examination.ended.is_set()
            so_far = "" if ended else " so far"
            self.app.notify(f"No finding{so_far} has a repair.", markup=False)
        elif self.is_current:
            view = self.query_one(FindingsView)
            at = view.findings[view.cursor].code if view.has_focus and view.findings else None
            self.app.push_screen(RepairScreen(self.path, offered, self.settings, at, self.target), self._repaired)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether there is something to salvage."""
        return action != "salvage" or self._damaged() is not None

    def action_salvage(self) -> None:
        """Show what is intact in the damaged file of the finding under the cursor, or of the first of them."""
        finding = self._damaged()
        if finding is not None:
            self._salvage(finding)

    def _damaged(self) -> Finding | None:
        found = [each for each in self.findings if damaged_file(self.path, each) is not None]
        chosen = self.query_one(FindingsView).under_cursor() if found else None
        return next((each for each in found if chosen in (None, each)), None)

    def _salvage(self, finding: Finding) -> None:
        file = damaged_file(self.path, finding)
        if file is None:
            return

        def show(report: FileReport) -> None:
            from ckptdoctor.tui.screens.damaged import DamagedScreen

            if self.is_current:
                self.app.push_screen(DamagedScreen(report, file, self._of))

        self.compute(lambda: check(file), show, OPENS)

    def action_fit(self) -> None:
        """Compare it with the target that the options name."""
        if self.opened is None:
            return
        if self.target.is_named:
            from ckptdoctor.tui.screens.fit import FitScreen

            self.app.push_screen(FitScreen(self.path, self.opened.checkpoint, self.settings, self.target, self._of))
        else:
            self.app.notify("There is no target to fit: open the file with --model, --config or --like.", markup=False)

    def _repaired(self, output: str | None) -> None:
        """Open what was written."""
        if output is not None:
            self.app.switch_screen(self._of(output))

    def _of(self, path: str) -> BrowserScreen:
        """The screen of another file, which should fit the same."""
        return BrowserScreen(path, self.settings, self.target)

    def command(self) -> str:
        """The equal command line, of what has the focus."""
        settings = self.examination.settings if self.examination is not None else self.settings
        if self.opened is None or self.query_one(FindingsView).has_focus:
            return command_line.check(self.path, settings)
        text = self.query_one(FilterBar).text
        if self._contents() is self.query_one(ListView):
            return command_line.show(self.path, keys=True, text=text)
        line = self.query_one(TreeView).line()
        if line is None:
            return command_line.show(self.path, text=text)
        level = line.parent if text and isinstance(line.item, int) else line.item  # a filter of one tensor is none
        return command_line.show(self.path, self.opened.lines.tree.path(level), text=text)

    def python(self) -> str:
        """The Python that loads what is under the cursor."""
        assert self.examination is not None
        container = self.report.container if self.report is not None else None
        place = self.opened.lines.tree.path(item) if self.opened and (item := self._under_cursor()) is not None else ()
        refused = any(finding.torch_says for finding in self.findings)
        return command_line.python(self.path, container.format if container else "", place, refused=refused)

    def _under_cursor(self) -> TreeItem | None:
        view = self._contents()
        if isinstance(view, ListView):
            return view.rows[view.cursor] if view.count() else None
        line = view.line()
        return line.item if line is not None else None

    def action_help(self) -> None:
        """All keys, and the language of the filter."""
        from ckptdoctor.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.active_bindings))

    def _contents(self) -> TreeView | ListView:
        current = self.query_one("#contents", ContentSwitcher).current
        return self.query_one(ListView) if current == "list" else self.query_one(TreeView)

    def _tell_order(self) -> None:
        self.query_one("#contents").border_subtitle = self._contents().order_in_words


def _coverage(report: FileReport | None) -> Coverage | None:
    return report.coverage if report is not None else None


def _when_there_is_time(path: str) -> None:
    """Import what keys open, and remember that the file was opened."""
    for name in _OPENED_LATER:
        import_module(name)
    history.remember(path)


def _size(path: str) -> list[str]:
    """The size of a file on this machine, which is known before anything is read."""
    return [size(os.path.getsize(path))] if os.path.isfile(path) else []


def _lines(text: str) -> str:
    """The text escaped, with the line breaks of a traceback."""
    return "\n".join(map(escape, text.split("\n")))
