"""A line for the name of a new file."""

from __future__ import annotations

from textual.events import Resize
from textual.widgets import Input


class OutputName(Input):
    """Shows the end of a name that has no room, which tells most, until somebody moves about in it."""

    def on_resize(self, event: Resize) -> None:
        """There may be less room now."""
        if not self.has_focus:
            self.action_home()
            self.action_end()
