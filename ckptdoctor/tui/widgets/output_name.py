"""A line for the name of a new file."""

from __future__ import annotations

from textual.events import Resize
from textual.widgets import Input


class OutputName(Input):
    """Shows the end of a name that has no room, which tells most, until somebody moves about in it.

    ``edited`` is whether somebody typed or deleted here, be it that there was nothing to delete.
    """

    edited = False

    def replace(self, text: str, start: int, end: int) -> None:
        """Every way to edit goes through this."""
        self.edited = True
        super().replace(text, start, end)

    def on_resize(self, event: Resize) -> None:
        """There may be less room now."""
        if not self.has_focus:
            self.action_home()
            self.action_end()
