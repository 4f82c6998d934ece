"""The keys at the bottom of a screen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer
from textual.widgets._footer import FooterKey


@dataclass(frozen=True, slots=True)
class _Shown:
    """A key as the footer says it: the key that a click presses, what it is called, and what it does."""

    key: str
    display: str
    description: str
    action: str
    disabled: bool
    tooltip: str


class KeyBar(Footer):
    """Textual's footer, which keeps its keys when others take their place.

    Another focus means other keys. To remove them all and to mount new ones takes several times as long as to draw the
    whole screen, and a key press that moves the focus would have to wait for it.
    """

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)

    def compose(self) -> ComposeResult:
        """The keys that work now; none before that is known."""
        if self._bindings_ready:
            yield from [_made(shown) for shown in self._wanted()]

    def bindings_changed(self, screen: Screen[object]) -> None:
        """Show the keys that work now, once what the screen shows has changed."""
        self._bindings_ready = True
        if screen.app.app_focus and self.is_attached and screen is self.screen:
            self.call_after_refresh(self._follow)

    async def _follow(self) -> None:
        if not self.is_attached or not self.screen.is_active:
            return
        wanted, have = list(self._wanted()), list(self.query_children(FooterKey))
        with self.app.batch_update():
            for key, shown in zip(have, wanted, strict=False):
                _become(key, shown)
            await self.remove_children(have[len(wanted) :])
            await self.mount_all([_made(shown) for shown in wanted[len(have) :]])

    def _wanted(self) -> Iterator[_Shown]:
        """The first binding of each action."""
        actions: set[str] = set()
        for _, binding, enabled, tooltip in self.screen.active_bindings.values():
            if binding.show and binding.action not in actions:
                actions.add(binding.action)
                display = self.app.get_key_display(binding)
                yield _Shown(binding.key, display, binding.description, binding.action, not enabled, tooltip)


def _made(shown: _Shown) -> FooterKey:
    key = FooterKey(shown.key, shown.display, shown.description, shown.action, shown.disabled, shown.tooltip)
    key.set_reactive(FooterKey.compact, False)
    return key


def _become(key: FooterKey, shown: _Shown) -> None:
    """Let a key stand for another one."""
    same = (key.key_display, key.description) == (shown.display, shown.description)
    key.key, key.key_display, key.description, key.action = shown.key, shown.display, shown.description, shown.action
    key._disabled = shown.disabled
    key.set_class(shown.disabled, "-disabled")
    if key.tooltip != (shown.tooltip or None):
        key.tooltip = shown.tooltip or None
    if not same:
        key.refresh(layout=True)
