"""What the command palette offers: everything the browser can do, found by typing what it is called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from ckptdoctor.tui.keys import MOVES


class BrowserCommands(Provider):
    """The keys of the screen as commands, by their names and tooltips; what has a key needs no line here."""

    def _commands(self) -> list[tuple[str, str, Callable[[], object]]]:
        seen: dict[str, tuple[str, str, Callable[[], object]]] = {}
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if binding.tooltip and active.enabled and binding.id not in MOVES:
                keys = self.app.get_key_display(binding)
                run = partial(self.app.run_action, binding.action, active.node)
                seen.setdefault(binding.tooltip, (binding.tooltip, keys, run))
        return list(seen.values())

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        for name, keys, run in self._commands():
            yield DiscoveryHit(name, run, help=keys)

    async def search(self, query: str) -> Hits:
        """Those that fit what was typed."""
        matcher = self.matcher(query)
        for name, keys, run in self._commands():
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, matcher.highlight(name), run, help=keys)
