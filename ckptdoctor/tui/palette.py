"""The list in which commands, and the colours, are found by typing."""

from __future__ import annotations

from textual.command import CommandPalette
from textual.widgets import OptionList


class Palette(CommandPalette):
    """Textual's own, but that no page is turned before the list has its place on the screen: all would end there."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether there is something to move in."""
        return action != "command_list" or bool(self.query_one(OptionList).scrollable_content_region)
