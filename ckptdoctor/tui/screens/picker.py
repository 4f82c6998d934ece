"""Lets people choose one of the checkpoints of a folder: what is typed narrows them down, enter opens."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from time import time
from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input
from textual.worker import get_current_worker

from ckptdoctor.errors import UsageError
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import count, plural, size
from ckptdoctor.tui import messages
from ckptdoctor.tui.background import StillReading, guarded
from ckptdoctor.tui.keys import key
from ckptdoctor.tui.models import command_line
from ckptdoctor.tui.models.choices import Choice, Opinion, age, choices, matching, now, opened_before, opinion
from ckptdoctor.tui.screens import HEIGHTS, WIDTHS
from ckptdoctor.tui.screens.help import HelpScreen
from ckptdoctor.tui.screens.panes import PanedScreen
from ckptdoctor.tui.widgets.bars import KeyBar, TitleBar
from ckptdoctor.tui.widgets.line_view import PHONE, LineView, fit, fit_middle

_SIZE, _AGE, _VERDICT = 11, 14, 26
_SHORT = 15  # cells of a verdict on a phone
_RECENT = "recently opened"
_NAME, _LONG = 20, 40  # cells that names have at least before there is a column of ages, and what long ones have


class PickerView(LineView):
    """A line is a checkpoint; what was found in it comes in while it is checked."""

    can_focus = False  # keys are typed into the line above it

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shown: list[Choice | None] = []  # None: the heading of those that were opened before
        self.opinions: dict[str, Opinion] = {}

    def count(self) -> int:
        """Return the number of checkpoints that are left."""
        return len(self.shown)

    def draw(self, number: int, width: int) -> Iterator[tuple[str, str]]:
        """Name, size, age, verdict."""
        choice = self.shown[number]
        if choice is None:
            yield fit(_RECENT, width), "dim"
            return
        said = self.opinions.get(choice.path, Opinion("reading…", "dim"))
        longest = max([cell_len(each.name) for each in self.shown if each is not None])
        ages = width - _SIZE - _AGE - _VERDICT >= max(_NAME, min(longest, _LONG))
        if width < PHONE:
            yield fit_middle(escape(choice.name), width - _SHORT) + "  ", "plain"
            yield fit(said.short or said.said, _SHORT - 2), said.look
            return
        yield fit_middle(escape(choice.name), width - _SIZE - _VERDICT - (_AGE if ages else 0)), "plain"
        yield fit(size(choice.nbytes), _SIZE, right=True), "plain"
        if ages:
            yield fit(age(time() - choice.written), _AGE, right=True), "dim"
        yield "  " + fit(said.said, _VERDICT - 2), said.look

    def activated(self, number: int) -> None:
        """Open it."""
        choice = self.shown[number]
        if choice is not None:
            self.post_message(messages.PathChosen(choice.path))

    def action_move(self, by: int) -> None:
        """Move the cursor, past the heading."""
        super().action_move(by)
        if self.shown and self.shown[self.cursor] is None:
            super().action_move(1 if by > 0 else -1)


class NameInput(Input):
    """Takes what is typed; the other keys move in the list and open, which Textual's own would keep to itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "screen.open", "open", "Open the checkpoint", show=True, display="⏎"),
        key("up", "screen.move(-1)", "up", "One line up", display="↑"),
        key("down", "screen.move(1)", "down", "One line down", display="↓"),
        key("pageup", "screen.page(-1)", "page up", "One page up"),
        key("pagedown", "screen.page(1)", "page down", "One page down"),
    ]


class PickerScreen(PanedScreen[None], StillReading):
    """``opens`` gives the screen of what is chosen. ``title`` says what for.

    ``other_than`` is a file that is open already and is compared with the chosen one: escape leads back to it.
    """

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("escape", "back", "back", "Clear the line, or go back", show=True, display="esc"),
        key("f1", "help", "help", "All keys", show=True),
    ]

    def __init__(
        self, folder: str, opens: Callable[[str], Screen[None]], title: str = "checkpoints", *, other_than: str = ""
    ) -> None:
        super().__init__()
        self.folder = folder
        self.opens = opens
        self.purpose = title
        self.other_than = other_than
        self.found: list[Choice] = []
        self.recent: list[Choice] = []

    def compose(self) -> ComposeResult:
        """Yield a line to type in, and the checkpoints that it leaves."""
        bar = TitleBar([escape(os.path.join(self.folder, ""))], id="title")
        bar.state = "looking for checkpoints…"
        yield bar
        yield NameInput(placeholder="type part of a name", compact=True, id="picked")
        yield PickerView(id="picker")
        yield KeyBar()

    def on_mount(self) -> None:
        """Look what there is."""
        self.query_one("#picker").border_title = Content(self.purpose)
        self.run_worker(lambda: guarded(self._look, self._nothing_there), group="choices", thread=True)

    def _look(self) -> None:
        """List the folder, then check one file after the other; for a thread."""
        worker = get_current_worker()
        recent = self._others(opened_before(self.folder))
        try:
            found = self._others(choices(self.folder))
        except UsageError:
            if not recent:
                raise
            found = []
        if not found and not recent:
            raise UsageError(f"{escape(self.folder)} has no other checkpoint to compare with.")
        self.post_message(messages.Computed(self._show, (found, recent)))
        for choice in [*found, *recent]:
            if worker.is_cancelled:
                return
            said = opinion(choice.path)
            self.post_message(messages.Computed(self._learn, (choice.path, said)))

    def _others(self, found: list[Choice]) -> list[Choice]:
        """Return what can be chosen: not the file that it would be compared with."""
        same = os.path.realpath(self.other_than) if self.other_than else None
        return [each for each in found if os.path.realpath(each.path) != same]

    def _nothing_there(self, sentence: str) -> None:
        self.post_message(messages.Computed(self._leave, sentence))

    def _leave(self, sentence: str) -> None:
        self.filled.set()
        self.give_up(sentence)

    def _show(self, listed: tuple[list[Choice], list[Choice]]) -> None:
        found, self.recent = listed
        if len(found) == 1 and not self.other_than:
            self.filled.set()
            self.app.switch_screen(self.opens(found[0].path))
            return
        self.found = found
        self.query_one(TitleBar).say(state=plural(len(found), "checkpoint"))
        self._narrow()
        self.filled.set()

    def on_screen_resume(self) -> None:
        """Look again at what has been changed meanwhile, when somebody comes back."""
        if self.found or self.recent:
            self.run_worker(
                lambda: guarded(self._look_again, self.complain), group="again", exclusive=True, thread=True
            )

    def _look_again(self) -> None:
        """Check the files again that are not what they were; for a thread."""
        worker = get_current_worker()
        for choice in [*self.found, *self.recent]:
            if worker.is_cancelled:
                return
            if (renewed := now(choice)) != choice:
                self.post_message(messages.Computed(self._renew, (choice, renewed)))
                self.post_message(messages.Computed(self._learn, (choice.path, opinion(choice.path))))

    def _renew(self, both: tuple[Choice, Choice]) -> None:
        old, renewed = both
        view = self.query_one(PickerView)
        self.found = [renewed if each == old else each for each in self.found]
        self.recent = [renewed if each == old else each for each in self.recent]
        view.shown = [renewed if each == old else each for each in view.shown]
        view.redraw()

    def _learn(self, learnt: tuple[str, Opinion]) -> None:
        view = self.query_one(PickerView)
        view.opinions[learnt[0]] = learnt[1]
        view.redraw()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow down."""
        event.stop()
        self._narrow()
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether there is anything to clear, or a screen to go back to."""
        return action != "back" or bool(self.other_than) or bool(self.query_one(Input).value)

    def _narrow(self) -> None:
        view, typed = self.query_one(PickerView), self.query_one(Input).value
        recent = matching(self.recent, typed)
        view.shown = [*matching(self.found, typed), *([None, *recent] if recent else [])]
        view.say_nothing("No name matches." if self.found or self.recent else "")
        shown = sum([each is not None for each in view.shown])
        of = f"{count(shown)} of {count(len(self.found) + len(self.recent))}"
        view.border_subtitle = of if typed else "headers only: values are not checked"
        view.redraw()
        view.cursor = 1 if view.shown[:1] == [None] else 0

    def on_path_chosen(self, message: messages.PathChosen) -> None:
        """Open it."""
        self.app.push_screen(self.opens(message.path))

    def action_open(self) -> None:
        """Open what the cursor is on."""
        self.query_one(PickerView).action_activate()

    def action_move(self, by: int) -> None:
        """Move the cursor by so many lines."""
        self.query_one(PickerView).action_move(by)

    def action_page(self, by: int) -> None:
        """Move the cursor by so many pages."""
        self.query_one(PickerView).action_page(by)

    def action_back(self) -> None:
        """Show all again; where all are shown, go back."""
        typed = self.query_one(Input)
        if typed.value:
            typed.value = ""
        elif self.other_than:
            self.leave()

    def command(self) -> str:
        """Check all of them."""
        return command_line.check(self.folder)

    def action_help(self) -> None:
        """Show all keys."""
        self.app.push_screen(HelpScreen(self.active_bindings))
