"""Draws the line at the top, which says which file this is and what is wrong with it, and the keys at the bottom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.events import Resize
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

from ckptdoctor.findings import Finding, Severity
from ckptdoctor.rendering.numbers import plural
from ckptdoctor.tui.widgets.line_view import PHONE, fit, fit_middle

_PLURALS = {
    Severity.ERROR: ("error", "errors"),
    Severity.WARNING: ("warning", "warnings"),
    Severity.INFO: ("info", "infos"),
}


_PATH = 26  # cells of a path that is cut to make room for facts


class TitleBar(Widget):
    """Name of the program, file, format and size; on the right how many findings, or what is going on."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"title--{name}" for name in ("name", "error", "warning", "info", "dim")}

    def __init__(self, what: Sequence[str], id: str | None = None) -> None:
        super().__init__(id=id)
        self.what = what
        self.state = "reading headers…"
        self.counts: Mapping[Severity, int] = {}

    def say(
        self,
        *,
        what: Sequence[str] | None = None,
        state: str | None = None,
        counts: Mapping[Severity, int] | None = None,
    ) -> None:
        """Say something else; None: as before. ``what`` and ``state`` are escaped already."""
        self.what = self.what if what is None else what
        self.state = self.state if state is None else state
        self.counts = self.counts if counts is None else counts
        self.refresh()

    def on_resize(self, event: Resize) -> None:
        """Draw again: there is another width for the name."""
        self.refresh()

    def render(self) -> Text:
        """Return one line that fits."""
        right = self._right()
        name = " ckptdoctor  " if self.size.width >= PHONE else " "
        left = max(0, self.size.width - right.cell_len - len(name) - 1)
        text = Text(no_wrap=True, end="").append(name, self._style("name"))
        return text.append(fit(self._what(left), left), self.rich_style).append_text(right).append(" ")

    def _what(self, room: int) -> str:
        """Return the path, and as many facts as there is room for: a long path is cut before they are left out."""
        path, *facts = self.what
        said = ""
        for fact in facts:
            if min(cell_len(path), _PATH) + cell_len(f"{said} · {fact}") > room:
                break
            said = f"{said} · {fact}"
        return fit_middle(path, min(cell_len(path), room - cell_len(said))).rstrip() + said

    def _right(self) -> Text:
        text = Text("")
        if self.state:
            text.append(f"  {self.state}", self._style("dim"))
        for severity, number in self.counts.items():
            text.append(f"  {plural(number, *_PLURALS[severity])}", self._style(severity.value))
        return text

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"title--{name}")


def counted(findings: Iterable[Finding]) -> dict[Severity, int]:
    """Return the number of findings of each severity, worst first."""
    found = Counter([finding.severity for finding in findings])
    return {severity: found[severity] for severity in reversed(Severity) if found[severity]}


_KEPT = ("help", "app.quit")


@dataclass(frozen=True, slots=True)
class _Shown:
    """A key as the footer says it: the key that a click presses, what it is called, and what it does."""

    key: str
    display: str
    description: str
    action: str
    disabled: bool
    tooltip: str

    @property
    def cells(self) -> int:
        """How wide it is, with the blanks around the key and behind what it does."""
        return cell_len(self.display) + cell_len(self.description) + 3


class KeyBar(Footer):
    """Textual's footer, which keeps its keys when others take their place.

    Another focus means other keys. To remove them all and to mount new ones takes several times as long as to draw the
    whole screen, and a key press that moves the focus would have to wait for it.
    """

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)

    def compose(self) -> ComposeResult:
        """Yield the keys that work now; none before that is known."""
        if self._bindings_ready:
            yield from [_made(shown) for shown in self._fitting()]

    def bindings_changed(self, screen: Screen[object]) -> None:
        """Show the keys that work now, once what the screen shows has changed."""
        self._bindings_ready = True
        if screen.app.app_focus and self.is_attached and screen is self.screen:
            self.call_after_refresh(self._follow)

    def on_resize(self, event: Resize) -> None:
        """Show as many keys as there is room for now."""
        if self._bindings_ready:
            self.call_after_refresh(self._follow)

    async def _follow(self) -> None:
        if not self.is_attached or not self.screen.is_active:
            return
        wanted, have = self._fitting(), list(self.query_children(FooterKey))
        with self.app.batch_update():
            for key, shown in zip(have, wanted, strict=False):
                _become(key, shown)
            await self.remove_children(have[len(wanted) :])
            await self.mount_all([_made(shown) for shown in wanted[len(have) :]])

    def _fitting(self) -> list[_Shown]:
        """Return what there is room for: without the last ones, but with the one that lists all, and the way out."""
        found = list(self._wanted())
        room = self.app.size.width - sum(each.cells for each in found)
        for each in reversed(found):
            if room >= 0:
                break
            if each.action not in _KEPT:
                found.remove(each)
                room += each.cells
        return found

    def _wanted(self) -> Iterator[_Shown]:
        """Yield the first binding of each action."""
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
