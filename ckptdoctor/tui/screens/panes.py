"""A screen of panes, of which one has the keys."""

from __future__ import annotations

from typing import TypeVar

from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget

Result = TypeVar("Result")


class PanedScreen(Screen[Result]):
    """A screen of which another focus draws the two panes again, and the keys: Textual's draws all that is on it."""

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
