"""Sets up the application: its themes, the command palette, keys that work everywhere, and the first screen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rich.terminal_theme import TerminalTheme
from rich.text import Text
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.color import Color
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.filter import Monochrome, NoColor
from textual.reactive import Reactive
from textual.screen import Screen
from textual.theme import Theme, ThemeProvider
from textual.widgets import OptionList

from ckptdoctor.crash import one_line, wants_trace
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.errors import UsageError
from ckptdoctor.rendering.escape import escape
from ckptdoctor.tui.background import Wandering
from ckptdoctor.tui.key_queue import KeyQueue
from ckptdoctor.tui.keys import ANYWHERE, MOVES, key
from ckptdoctor.tui.messages import ComparisonWanted
from ckptdoctor.tui.models.choices import is_to_be_chosen_from
from ckptdoctor.tui.models.command_line import Commanding, Loadable, check
from ckptdoctor.tui.screens.browser import BrowserScreen
from ckptdoctor.tui.themes import DARK_THEME, LIGHT_THEME, preferred


def _reports(theme: Theme) -> TerminalTheme:
    """Return the theme's colours for texts that were coloured for a terminal, such as the report of a damaged file."""
    of_theme = (theme.error, theme.success, theme.warning, theme.primary, theme.accent, theme.accent, theme.foreground)
    background, *colours = [Color.parse(str(each)).rgb for each in (theme.background, *of_theme)]
    return TerminalTheme(background, colours[-1], [background, *colours])


_OWN_AND_FIRST = 2  # screens when there is nothing to go back to: Textual's own, and the first of ours

_Command = tuple[str, str, Callable[[], object]]  # its name, its key with what it does, and how it is run


class BrowserCommands(Provider):
    """The keys of the screen as commands, by their names and tooltips; what has a key needs no line here."""

    def _commands(self) -> list[_Command]:
        seen: dict[str, _Command] = {}
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if binding.tooltip and active.enabled and binding.id not in MOVES:
                does = f"{self.app.get_key_display(binding)}  {binding.tooltip}"
                name = binding.description[:1].upper() + binding.description[1:]
                run = partial(self.app.run_action, binding.action, active.node)
                seen.setdefault(binding.tooltip, (name, does, run))
        return list(seen.values())

    async def discover(self) -> Hits:
        """Yield all commands, before anything is typed."""
        for name, does, run in self._commands():
            yield DiscoveryHit(name, run, help=does)

    async def search(self, query: str) -> Hits:
        """Yield the commands whose name or tooltip matches what was typed."""
        matcher = self.matcher(query)
        for name, does, run in self._commands():
            score = max(matcher.match(name), matcher.match(does))
            if score > 0:
                yield Hit(score, matcher.highlight(name), run, help=does)


class Palette(CommandPalette):
    """Textual's own, but that no page is turned before the list has its place on the screen: all would end there."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether the action can be used: the list of commands only scrolls where it has lines."""
        return action != "command_list" or bool(self.query_one(OptionList).scrollable_content_region)


class BrowserApp(KeyQueue[int], inherit_bindings=False):
    """``ckptdoctor browse``."""

    TITLE = "ckptdoctor"
    ansi_theme_dark = Reactive(_reports(DARK_THEME), init=False)
    ansi_theme_light = Reactive(_reports(LIGHT_THEME), init=False)
    CSS_PATH = Path(__file__).with_name("app.tcss")  # the same for whoever subclasses
    COMMANDS: ClassVar = App.COMMANDS | {BrowserCommands}
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        key("Y", "copy_python", "copy Python", "Copy the Python that loads what is under the cursor"),
        key("less_than_sign,alt+left", "go_back", "go back", "Back to where you were, as in a web browser"),
        key("greater_than_sign,alt+right", "go_forward", "go forward", "Forward again, after going back"),
        key("J,ctrl+o", "jump", "jump", "Label every visible line with a letter; type one to go there"),
        key("ctrl+p,colon", "command_palette", "commands", "Command palette"),
        *ANYWHERE,
        key("ctrl+c", "help_quit", "how to leave", "Show which key quits"),
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
        self._ahead: list[Screen[Any]] = []  # screens that somebody has come back from, the nearest last
        for each in (DARK_THEME, LIGHT_THEME):
            self.register_theme(each)
        self.theme = theme or preferred()
        if self.no_color:  # what NO_COLOR asks for: the terminal's own two colours, not shades of grey
            self._filters = [NoColor() if isinstance(each, Monochrome) else each for each in self._filters]

    def refresh_css(self, animate: bool = True) -> None:
        """Style everything again, in the colours of another theme.

        The theme that a browser begins with has nothing to style yet: Textual would read all style sheets here, and
        again for the first screen.
        """
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def _fatal_error(self) -> None:
        """Print a bug as one line, as the command line does: Textual would print the local variables of every frame."""
        error = self._exception
        if error is None or wants_trace():
            super()._fatal_error()
            return
        self._exit_renderables.append(Text(escape(one_line(error))))
        self._close_messages_no_wait()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield the one command of every Textual application that is about this one and writes no file."""
        yield SystemCommand("Change the colours", "Dark, light or another theme", self.action_change_theme)

    def action_command_palette(self) -> None:
        """Find a command by typing."""
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette())

    # where somebody has been

    def push_screen(self, screen: Any, *arguments: Any, **options: Any) -> Any:
        """Open a screen. There is no way forward from a new one, unless it only asks something."""
        if isinstance(screen, Screen) and not screen.is_modal:
            self._forget_ahead()
        return super().push_screen(screen, *arguments, **options)

    def switch_screen(self, screen: Any) -> Any:
        """Put a screen in the place of this one, from which there is no way forward either."""
        self._forget_ahead()
        return super().switch_screen(screen)

    def leave_screen(self, *, keep: bool = True) -> bool:
        """Go back to the screen below, and keep this one as it is for the way forward; False where there is none.

        One that still works something out is not kept: that ends with it. Nor is one where ``keep`` is false.
        """
        if len(self.screen_stack) <= _OWN_AND_FIRST:
            return False
        screen = self.screen
        own = [each for each in self.workers if each.node.is_attached and each.node.screen is screen]
        if not keep or not all(each.is_finished for each in own):
            self._forget_ahead()
        else:
            self.install_screen(screen, f"ahead-{id(screen)}")  # Textual throws others away
            self._ahead.append(screen)
        self.pop_screen()
        return True

    def _forget_ahead(self) -> None:
        gone, self._ahead = self._ahead, []
        for screen in gone:
            self.uninstall_screen(screen)
            screen.remove()

    def action_go_back(self) -> None:
        """Go back to where the cursor was on this screen before, or else to the screen below."""
        screen = self.screen
        if not (isinstance(screen, Wandering) and screen.wander(-1)):
            self.leave_screen()

    def action_go_forward(self) -> None:
        """Go forward on this screen, or else to the screen that was left last."""
        screen = self.screen
        if isinstance(screen, Wandering) and screen.wander(1):
            return
        if self._ahead:
            ahead = self._ahead.pop()
            self.uninstall_screen(ahead)
            super().push_screen(ahead)

    def action_jump(self) -> None:
        """Let a line be chosen by its letter."""
        from ckptdoctor.tui.screens.jump import JumpScreen

        self.push_screen(JumpScreen(self.screen))

    def search_themes(self) -> None:
        """Find a theme by typing."""
        self.push_screen(Palette([ThemeProvider], placeholder="Search for themes…"))

    def action_copy_command(self) -> None:
        """Copy the equal command: of the screen that is uppermost, or else the one below it."""
        commands = [screen.command for screen in reversed(self.screen_stack) if isinstance(screen, Commanding)]
        line = commands[0]() if commands else check(self.path, self.settings)
        self.copy_to_clipboard(line)
        self.notify(line, title="copied", markup=False)

    def action_copy_python(self) -> None:
        """Copy the Python that loads what is under the cursor, where the screen shows contents."""
        screen = self.screen
        if isinstance(screen, Loadable):
            try:
                line = screen.python()
            except UsageError as error:
                self.notify(error.message, severity="warning", markup=False)
                return
            self.copy_to_clipboard(line)
            self.notify(line, title="copied", markup=False)

    def on_comparison_wanted(self, message: ComparisonWanted) -> None:
        """Let somebody choose what to compare with."""
        from ckptdoctor.tui.screens.compare import CompareScreen
        from ckptdoctor.tui.screens.picker import PickerScreen

        path, settings = message.path, message.settings
        folder, name = os.path.split(path.rstrip(os.sep))
        title = f"compare {escape(name)} with"
        opens = partial(CompareScreen, path, settings=settings)
        self.push_screen(PickerScreen(folder or ".", opens, title, other_than=path))

    def on_mount(self) -> None:
        """Open the file."""
        self.set_keymap(self._keys)
        self.set_class(self.no_color, "-no-color")
        if self.other is not None:
            from ckptdoctor.tui.screens.compare import CompareScreen

            self.push_screen(CompareScreen(self.path, self.other, self.settings))
        elif os.path.isdir(self.path) and is_to_be_chosen_from(self.path):
            from ckptdoctor.tui.screens.picker import PickerScreen

            self.push_screen(PickerScreen(self.path, lambda path: BrowserScreen(path, self.settings)))
        else:
            self.push_screen(BrowserScreen(self.path, self.settings))
