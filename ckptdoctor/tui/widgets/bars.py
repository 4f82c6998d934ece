"""Draws the line at the top, which says which file this is and what is wrong with it, and the keys at the bottom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text
from textual.events import Leave, MouseDown, MouseMove, Resize
from textual.screen import Screen

from ckptdoctor.findings import Finding, Severity
from ckptdoctor.rendering.numbers import plural
from ckptdoctor.tui.widgets.line_view import PHONE, fit, fit_middle
from ckptdoctor.tui.widgets.looks import Looks

_PLURALS = {
    Severity.ERROR: ("error", "errors"),
    Severity.WARNING: ("warning", "warnings"),
    Severity.INFO: ("info", "infos"),
}


_PATH = 26  # cells of a path that is cut to make room for facts


class TitleBar(Looks):
    """Name of the program, file, format and size; on the right how many findings, or what is going on."""

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
        text = Text(no_wrap=True, end="").append(name, self.look("name"))
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
            text.append(f"  {self.state}", self.look("dim"))
        for severity, number in self.counts.items():
            text.append(
                f"  {plural(number, *_PLURALS[severity])}",
                self.look("soft" if severity is Severity.INFO else severity.value),
            )
        return text


def counted(findings: Iterable[Finding]) -> dict[Severity, int]:
    """Return the number of findings of each severity, worst first."""
    found = Counter([finding.severity for finding in findings])
    return {severity: found[severity] for severity in reversed(Severity) if found[severity]}


_KEPT = ("help", "app.quit")
_MOST = 8  # keys: more of them nobody reads


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A key as the bar says it: the key that a click presses, what it is called, and what it does."""

    key: str
    display: str
    description: str
    action: str
    enabled: bool
    tooltip: str

    @property
    def cells(self) -> int:
        """How wide it is, with the blanks around the key and behind what it does."""
        return cell_len(self.display) + cell_len(self.description) + 3


class KeyBar(Looks):
    """The keys that work now, as many as there is room for; a click presses one.

    They are one line of text. Textual's footer has a widget for each key: another focus means other keys, for which the
    whole screen was arranged again, twice, and a key press that moves the focus had to wait for that.
    """

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self.keys: tuple[ShownKey, ...] = ()
        self._below: ShownKey | None = None  # the mouse

    def on_mount(self) -> None:
        """Hear when other keys work."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def on_resize(self, event: Resize) -> None:
        """Show as many keys as there is room for now."""
        self._follow()

    def _changed(self, screen: Screen[object]) -> None:
        if screen.app.app_focus and self.is_attached and screen is self.screen:
            self.call_after_refresh(self._follow)  # what the key has changed comes first

    def _follow(self) -> None:
        if self.is_attached and self.screen.is_active:
            keys = tuple(self._fitting())
            if keys != self.keys:
                self.keys = keys
                self.refresh()

    def _fitting(self) -> list[ShownKey]:
        """Return what there is room for: without the last ones, but with the one that lists all, and the way out."""
        found = list(self._wanted())
        room = self.app.size.width - sum(each.cells for each in found)
        for each in reversed(found):
            if room >= 0 and len(found) <= _MOST:
                break
            if each.action not in _KEPT:
                found.remove(each)
                room += each.cells
        return found

    def _wanted(self) -> Iterator[ShownKey]:
        """Yield the first binding of each action."""
        actions: set[str] = set()
        for _, binding, enabled, tooltip in self.screen.active_bindings.values():
            if binding.show and binding.action not in actions:
                actions.add(binding.action)
                display = self.app.get_key_display(binding)
                yield ShownKey(binding.key, display, binding.description, binding.action, enabled, tooltip)

    def render(self) -> Text:
        """Return the line."""
        text = Text(no_wrap=True, end="")
        for each in self.keys:
            begin = len(text)
            text.append(f" {each.display} ", self.look("name")).append(f"{each.description} ", self.look("plain"))
            if not each.enabled:
                text.stylize("dim", begin)
            elif each == self._below:
                text.stylize(self.look("cursor"), begin)
        return text

    # mouse

    def key_at(self, column: int) -> ShownKey | None:
        """Return the key that is shown at a column."""
        for each in self.keys:
            column -= each.cells
            if column < 0:
                return each
        return None

    def on_mouse_move(self, event: MouseMove) -> None:
        """Highlight the key below the mouse, and say more of it."""
        self._hover(self.key_at(event.x))

    def on_leave(self, event: Leave) -> None:
        """Highlight no key."""
        self._hover(None)

    def _hover(self, below: ShownKey | None) -> None:
        if below != self._below:
            self._below = below
            self.tooltip = below.tooltip if below is not None else None
            self.refresh()

    def on_mouse_down(self, event: MouseDown) -> None:
        """Press the key."""
        pressed = self.key_at(event.x)
        if pressed is not None and pressed.enabled:
            self.app.simulate_key(pressed.key)
        elif pressed is not None:
            self.app.bell()
