"""Draws the main screen: contents, what is under the cursor, and what is wrong; keys lead on from there."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.widgets import ContentSwitcher

from ckptdoctor.checkpoint.expectation import Coverage
from ckptdoctor.diagnose.findings import worst_first
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.filters.language import parse
from ckptdoctor.filters.suggestions import better_filter
from ckptdoctor.filters.table import Rows
from ckptdoctor.findings import FileReport, Finding
from ckptdoctor.remote import addresses
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.fates import damaged_file
from ckptdoctor.rendering.numbers import count, plural
from ckptdoctor.tui import messages
from ckptdoctor.tui.background import OPENS
from ckptdoctor.tui.keys import PANES, key
from ckptdoctor.tui.models import command_line
from ckptdoctor.tui.models.on_disk import is_replaced
from ckptdoctor.tui.models.python_calls import is_refused, python
from ckptdoctor.tui.screens.places import PlacesScreen
from ckptdoctor.tui.widgets.bars import TitleBar
from ckptdoctor.tui.widgets.detail import Detail
from ckptdoctor.tui.widgets.filter_bar import FilterBar
from ckptdoctor.tui.widgets.findings import FindingsView
from ckptdoctor.tui.widgets.list_view import ListView
from ckptdoctor.tui.widgets.tree_view import TreeView
from ckptdoctor.tui.workers import SharedTarget

if TYPE_CHECKING:
    from ckptdoctor.checkpoint import Checkpoint
    from ckptdoctor.examine.offers import Offer


class BrowserScreen(PlacesScreen):
    """One file, and what can be done with it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("slash", "filter", "filter", "Filter by name, dtype, shape, size or finding", show=True),
        key("t", "switch", "list", "Switch between the tree and a list of all tensors", show=True),
        key("n", "next_finding(1)", "next finding", "Go to the next finding and what it is about"),
        key("N", "next_finding(-1)", "finding before", "Go to the previous finding and what it is about"),
        key("b", "bookmark", "bookmark", "Set a bookmark here, or remove it; bookmarks are kept"),
        key("B", "next_bookmark", "next bookmark", "Go to the next bookmark"),
        *PANES,
        key("e", "examine_deeply", "deep", "Read every byte: checksums and values", show=True),
        key("f", "repair", "fix", "Choose repairs, see the plan, write a repaired file", show=True),
        key("s", "salvage", "salvage", "Show what is intact in a damaged file, and save it", show=True),
        key("c", "fit", "fit", "Show how much of it fits the target of --model, --config or --like"),
        key("D", "compare", "compare", "Compare with another file in the folder"),
        key("z", "maximise", "maximise", "Maximise the pane, or restore it"),
        key("escape", "stop", "stop or back", "Stop reading, clear the filter, or go back"),
        key("question_mark,f1", "help", "help", "All keys, and the language of the filter", show=True),
    ]

    def __init__(self, path: str, settings: Settings, target: SharedTarget | None = None) -> None:
        super().__init__(path, settings, target)
        self._alone = False  # whether one pane has all the room

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
            self.query_one(Detail).explain_filters()
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
        """Show all tensors in one list, or the tree again."""
        switcher = self.query_one("#contents", ContentSwitcher)
        switcher.current = "list" if switcher.current == "tree" else "tree"
        self._contents().focus()
        self._tell_order()

    def action_examine_deeply(self) -> None:
        """Read every byte."""
        if self.opened is not None:
            self.examine(replace(self.settings, deep=True))

    def action_stop(self) -> None:
        """Stop reading every byte; where nothing is read, leave the pane at the right, or show what a filter hides."""
        if self.examination is not None and self.examination.stop():
            self.query_one(TitleBar).say(state="stopping…")
        elif self.query_one(Detail).has_focus and self._contents().focusable:
            self._contents().focus()
        elif self.query_one(FilterBar).text:
            self.query_one(FilterBar).forget()
        else:
            self.leave()

    def action_maximise(self) -> None:
        """Give the pane that has the focus all the room, or share it again."""
        panes = [self.query_one(name) for name in ("#findings", "#panes", "#contents", "#detail")]
        self._alone = not self._alone
        for pane in panes:
            pane.display = not self._alone or pane.has_focus_within or pane.has_focus
            pane.set_class(self._alone, "-alone")

    def action_help(self) -> None:
        """Show all keys, and the language of the filter."""
        from ckptdoctor.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.active_bindings))

    # other screens

    def action_compare(self) -> None:
        """Choose what to compare with."""
        if addresses.is_address(self.path):
            self.app.notify(
                "This file is not on this machine. To compare it, start browse with both paths.", markup=False
            )
        else:
            self.post_message(messages.ComparisonWanted(self.path, self.settings))

    def action_repair(self) -> None:
        """Choose repairs, when all rules have been asked; while every byte is read, of what was found until now."""
        examination = self.examination
        if self.opened is None or examination is None:
            return
        if addresses.is_address(self.path):
            self.app.notify("Only files on this machine can be repaired: download it first.", markup=False)
            return
        if is_replaced(self.path, self.opened.state):
            self.reopen()
            return
        findings, report, checkpoint, path = list(self.findings), self.report, self.opened.checkpoint, self.path

        def work() -> list[Offer]:
            from ckptdoctor.examine.offers import offers

            # planning takes long to import and nothing else needs it: here, so that ``_offer`` finds it ready
            import_module("ckptdoctor.tui.screens.repair")
            if not examination.settings.deep:
                examination.ended.wait()
                ended = examination.report
                return offers(ended.findings if ended is not None else (), _coverage(ended))
            return offers(worst_first(_offered(findings, checkpoint, path)), _coverage(report))

        self.compute(work, self._offer, OPENS)

    def _offer(self, offered: list[Offer]) -> None:
        from ckptdoctor.tui.screens.repair import RepairScreen

        if not offered:
            ended = self.examination is None or self.examination.ended.is_set()
            so_far = "" if ended else " so far"
            said = (
                f"No finding{so_far} has a repair."
                if self.findings
                else f"No problems found{so_far}: nothing to repair."
            )
            self.app.notify(said, markup=False)
        elif self.is_current:
            view = self.query_one(FindingsView)
            at = view.findings[view.cursor].code if view.has_focus and view.findings else None
            self.app.push_screen(RepairScreen(self.path, offered, self.settings, at, self.target), self._repaired)

    def _repaired(self, output: str | None) -> None:
        """Open what was written."""
        if output is not None:
            self.app.push_screen(self._of(output))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether the action can be used: saving what is intact needs a damaged file."""
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

    def action_fit(self) -> None:
        """Compare it with the target that the options name."""
        if self.opened is None:
            return
        if self.target.is_named:
            from ckptdoctor.tui.screens.fit import FitScreen

            self.app.push_screen(FitScreen(self.path, self.opened.checkpoint, self.settings, self.target, self._of))
        else:
            self.app.notify("There is no target to fit: open the file with --model, --config or --like.", markup=False)

    # what is copied

    def command(self) -> str:
        """Return the equal command line, of what has the focus."""
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
        """Return the Python that loads what is under the cursor. Raises UsageError where there is none."""
        assert self.examination is not None
        container = self.report.container if self.report is not None else None
        place = self.opened.lines.tree.path(item) if self.opened and (item := self._under_cursor()) is not None else ()
        tree = self.opened.checkpoint.tree if self.opened is not None else None
        format = container.format if container is not None else ""
        return python(self.path, format, tree, place, refused=is_refused(self.findings, format))


def _offered(findings: list[Finding], checkpoint: Checkpoint, path: str) -> list[Finding]:
    """Return what was found so far, without repairs that the report at the end would leave out."""
    from ckptdoctor.examine.printable import keeping, printable

    return keeping(printable(findings, checkpoint), checkpoint, None, path, None, path)


def _coverage(report: FileReport | None) -> Coverage | None:
    return report.coverage if report is not None else None
