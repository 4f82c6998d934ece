"""The application: themes, keys that work everywhere, and the first screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.filter import Monochrome, NoColor
from textual.screen import Screen
from textual.theme import ThemeProvider

from ckptdoctor.crash import one_line, wants_trace
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.report.escape import escape
from ckptdoctor.tui.commands import BrowserCommands
from ckptdoctor.tui.in_turn import InTurn
from ckptdoctor.tui.keys import ANYWHERE, key
from ckptdoctor.tui.models.command_line import Commanding, check
from ckptdoctor.tui.palette import Palette
from ckptdoctor.tui.screens.browser import BrowserScreen
from ckptdoctor.tui.screens.compare import CompareScreen
from ckptdoctor.tui.themes import DARK, LIGHT, preferred


class BrowserApp(InTurn[int], inherit_bindings=False):
    """``ckptdoctor browse``."""

    TITLE = "ckptdoctor"
    CSS_PATH = Path(__file__).with_name("app.tcss")  # the same for whoever subclasses
    COMMANDS: ClassVar = App.COMMANDS | {BrowserCommands}
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        key("ctrl+p,colon", "command_palette", "commands", "Everything there is to do, by name"),
        *ANYWHERE,
        key("ctrl+c", "help_quit", "how to leave", "Say which key leaves"),
    ]

    def __init__(
        self,
        path: str,
        settings: Settings | None = None,
        theme: str | None = None,
        keymap: Mapping[str, str] | None = None,
        other: str | None = None,
    ) -> None:
        super().__init__()
        self.path = path
        self.other = other
        self.settings = settings or Settings()
        self._keys = dict(keymap or {})
        for each in (DARK, LIGHT):
            self.register_theme(each)
        self.theme = theme or preferred()
        if self.no_color:  # what NO_COLOR asks for: the terminal's own two colours, not shades of grey
            self._filters = [NoColor() if isinstance(each, Monochrome) else each for each in self._filters]

    def _fatal_error(self) -> None:
        """A bug is one line, as it is on the command line: Textual would print every local variable of every frame."""
        error = self._exception
        if error is None or wants_trace():
            super()._fatal_error()
            return
        self._exit_renderables.append(Text(escape(one_line(error))))
        self._close_messages_no_wait()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Of the commands of every Textual application only the one that is about this one, and that writes no file."""
        yield SystemCommand("Change the colours", "Dark or light, or another theme", self.action_change_theme)

    def action_command_palette(self) -> None:
        """Find a command by typing."""
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette())

    def search_themes(self) -> None:
        """Find a theme by typing."""
        self.push_screen(Palette([ThemeProvider], placeholder="Search for themes…"))

    def action_copy_command(self) -> None:
        """Copy the equal command: of the screen that is uppermost, or else the one below it."""
        commands = [screen.command for screen in reversed(self.screen_stack) if isinstance(screen, Commanding)]
        line = commands[0]() if commands else check(self.path, self.settings)
        self.copy_to_clipboard(line)
        self.notify(line, title="copied", markup=False)

    def on_mount(self) -> None:
        """Open the file."""
        self.set_keymap(self._keys)
        self.set_class(self.no_color, "-no-color")
        if self.other is not None:
            self.push_screen(CompareScreen(self.path, self.other, self.settings))
        else:
            self.push_screen(BrowserScreen(self.path, self.settings))
