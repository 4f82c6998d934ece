"""Puts a letter on every line that is to be seen: typed, it takes the cursor there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.events import Click, Key
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from ckptdoctor.tui.keys import key
from ckptdoctor.tui.widgets.line_view import LineView

_LETTERS = "asdfghjklqwertyuiopzxcvbnmASDFGHJKLQWERTYUIOPZXCVBNM0123456789"


class JumpScreen(ModalScreen[None]):
    """Lies over the screen that it is about, which stays to be seen; any other key closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [key("escape", "dismiss", "stay", "Stay where you are")]

    def __init__(self, below: Screen[object]) -> None:
        super().__init__()
        self._places = dict(zip(_LETTERS, _lines(below), strict=False))

    def compose(self) -> ComposeResult:
        """Yield what to do, in place of the keys."""
        yield Static("Type the letter of a line to go there; any other key stays here.", id="jump-said")

    def on_mount(self) -> None:
        """Show the letters."""
        for letter, (view, number) in self._places.items():
            view.letters[number] = letter
            view.refresh_line(number)

    def on_unmount(self) -> None:
        """Show the lines as they were."""
        for view, _ in self._places.values():
            view.letters = {}
            view.refresh()

    def on_key(self, event: Key) -> None:
        """Go there."""
        event.stop()
        view, number = self._places.get(event.character or "", (None, 0))
        self.dismiss()
        if view is not None:
            view.cursor = number
            if view.focusable:
                view.focus()

    def on_click(self, event: Click) -> None:
        """Stay."""
        event.stop()
        self.dismiss()


def _lines(screen: Screen[object]) -> Iterator[tuple[LineView, int]]:
    """Yield every line on the screen with its view, those of the view with the focus first."""
    views = sorted(screen.query(LineView), key=lambda view: not view.has_focus)
    for view in views:
        if view.is_on_screen and view.display:
            top = view.scroll_offset.y
            height = view.scrollable_content_region.height
            yield from ((view, number) for number in range(top, min(view.count(), top + height)))
