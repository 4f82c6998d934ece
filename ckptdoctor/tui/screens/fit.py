"""Shows how a checkpoint fits a model, a config or another file: coverage, the chain of repairs, leftovers."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.offers import Offer
from ckptdoctor.fit.fit import Fit, fit_to, fitting_offers
from ckptdoctor.remote import addresses
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import plural
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.tui import messages
from ckptdoctor.tui.background import FEW, OPENS, StillReading
from ckptdoctor.tui.keys import PANES, key
from ckptdoctor.tui.models import command_line
from ckptdoctor.tui.models.fitted import FitNames, FitRow, headline, names_of
from ckptdoctor.tui.screens import HEIGHTS, WIDTHS
from ckptdoctor.tui.screens.help import HelpScreen
from ckptdoctor.tui.screens.panes import PanedScreen
from ckptdoctor.tui.screens.repair import RepairScreen
from ckptdoctor.tui.widgets.bars import KeyBar, TitleBar
from ckptdoctor.tui.widgets.fit_view import FitView, NamesView
from ckptdoctor.tui.workers import SharedTarget


class FitScreen(PanedScreen[None], StillReading):
    """Opened over another screen; escape goes back."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    AUTO_FOCUS = "FitView"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("escape,c", "back", "back", "Back to where you came from", show=True, display="esc"),
        key("f", "repair", "fix", "Apply these steps: see the plan, write a repaired file", show=True),
        *PANES,
        key("question_mark,f1", "help", "help", "All keys", show=True),
    ]

    def __init__(
        self,
        path: str,
        checkpoint: Checkpoint,
        settings: Settings,
        target: SharedTarget,
        opened: Callable[[str], Screen[None]],
    ) -> None:
        """Take what is compared with the target; ``opened`` gives the screen of another file, of what was written."""
        super().__init__()
        self.path = path
        self.checkpoint = checkpoint
        self.settings = settings
        self.target = target
        self.opened = opened
        self.fit: Fit | None = None

    def compose(self) -> ComposeResult:
        """Yield a sentence, the steps, and the names that the chosen one is about."""
        bar = TitleBar([escape(addresses.shown(self.path))], id="title")
        bar.state = "reading the target…"
        yield bar
        yield Static(id="fit-summary", markup=False)
        yield FitView(id="fit")
        yield NamesView(id="names")
        yield KeyBar()

    def on_mount(self) -> None:
        """Compare, which runs the user's own code where the target is a model."""
        self.query_one("#fit").border_title = "coverage in keys and in parameters"
        self.compute(self._held, self._show, "fit")

    def _held(self) -> Fit:
        reference = self.target.read()
        assert reference is not None  # this screen is opened for what is named
        return fit_to(self.checkpoint, reference, self.settings.root)

    def _show(self, found: Fit) -> None:
        self.fit = found
        self.query_one(TitleBar).say(what=[*self.query_one(TitleBar).what, f"fit to {escape(found.target)}"], state="")
        text = Text(headline(found), "bold")
        if found.rivals:
            text.append(f"\n{_rivals(found)}")
        self.query_one("#fit-summary", Static).update(text)
        view = self.query_one(FitView)
        view.border_subtitle = Content(f"in {escape(found.place)}" if found.place else "")
        view.show(found)
        self.filled.set()

    def on_row_selected(self, message: messages.RowSelected) -> None:
        """Show the names of a step or leftover."""
        row = message.row
        many = len(row.pairs) + len(row.misfits)
        self.query_one(NamesView).border_title = Content(row.title)
        self.query_one(NamesView).border_subtitle = plural(many, "key") if many else ""
        # finding groups takes far longer than drawing a line: fewer than usual are done at once
        self.compute(lambda: names_of(row), lambda found: self._list(row, found), "names", many * FEW // 2_000)

    def _list(self, row: FitRow, found: list[FitNames]) -> None:
        if not found:
            found = [FitNames("nothing changes" if row.number else "keys as they are in the file")]
        self.query_one(NamesView).show_names(found)

    def on_row_activated(self, message: messages.RowActivated) -> None:
        """Go to the names."""
        self.query_one(NamesView).focus()

    def action_back(self) -> None:
        """Go back to the screen that this was opened from."""
        self.leave()

    def action_repair(self) -> None:
        """Plan the chain."""
        if self.fit is None:
            return
        if addresses.is_address(self.path):
            self.app.notify("Only files on this machine can be repaired: download it first.", markup=False)
            return
        checkpoint, settings, target = self.checkpoint, self.settings, self.target
        self.compute(lambda: fitting_offers(checkpoint, settings, target.read()), self._offer, OPENS)

    def _offer(self, offered: list[Offer]) -> None:
        if offered:
            self.app.push_screen(RepairScreen(self.path, offered, self.settings, target=self.target), self._repaired)
        else:
            self.app.notify("No finding has a repair.", markup=False)

    def _repaired(self, output: str | None) -> None:
        """Open what was written."""
        if output is not None:
            self.app.push_screen(self.opened(output))

    def command(self) -> str:
        """Return the command that repairs, where that makes everything fit; else the one that checks."""
        if self.fit is not None and self.fit.option and self.fit.steps and self.fit.complete:
            return command_line.fix(FixRequest(self.path, auto=True), self.settings)
        return command_line.check(self.path, self.settings)

    def action_help(self) -> None:
        """Show all keys."""
        self.app.push_screen(HelpScreen(self.active_bindings))


def _rivals(found: Fit) -> str:
    names = ", ".join([escape(each) or "the whole contents" for each in found.rivals])
    return f"{names} fit as well: --root chooses"
