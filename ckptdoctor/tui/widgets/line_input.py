"""Keys that are dealt with in the order in which they come, however quickly that is; and a line to type in."""

from __future__ import annotations

from textual.events import Key
from textual.widget import Widget
from textual.widgets import Input


class InOrder(Widget):
    """Mixed into what has keys of its own: Textual looks for those after a detour on which others overtake them."""

    async def _on_key(self, event: Key) -> None:
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return  # any other key is for the handlers of the other classes, which Textual calls as well


class LineInput(Input, InOrder):
    """A line to type in."""
