"""All keys that work where somebody is, and the language of the filter."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import ActiveBinding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from ckptdoctor.tui.keys import COPY, key
from ckptdoctor.tui.models import filtering

_OTHER_KEYS = (
    "A table [keys] in ckptdoctor.toml, or [tool.ckptdoctor.keys] in pyproject.toml, gives them: "
    'filter = "f", list = ["z", "f2"]. What has a key here is called:'
)


class HelpScreen(ModalScreen[None]):
    """Keys and what they do; escape closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("escape,question_mark,q,f1", "dismiss", "close", "Close the help"),
        COPY,
    ]

    def __init__(self, bindings: Mapping[str, ActiveBinding]) -> None:
        super().__init__()
        self.listed = _listed(bindings)
        self.names = sorted({each.binding.id for each in bindings.values() if each.binding.id and each.binding.tooltip})

    def compose(self) -> ComposeResult:
        """One text that scrolls."""
        with VerticalScroll(id="help"):
            yield Static(self._text(), markup=False)

    def on_mount(self) -> None:
        """Name it."""
        self.query_one("#help").border_title = "help"
        self.query_one("#help").border_subtitle = "escape closes"

    def _text(self) -> Text:
        text = Text()
        text.append("Keys\n", "bold")
        for keys, meaning in self.listed:
            text.append(f"  {keys:<16}", "bold").append(f"{meaning}\n")
        text.append("\nMouse\n", "bold").append("  Click to choose, click twice to open, turn the wheel to scroll.\n")
        _, _, explained = (filtering.__doc__ or "").partition("\n\n")
        text.append("\nFilter\n", "bold").append(inspect.cleandoc(explained.replace("``", "")))
        text.append("\n\nOther keys\n", "bold").append(f"{_OTHER_KEYS}\n{', '.join(self.names)}")
        return text


def _listed(bindings: Mapping[str, ActiveBinding]) -> list[tuple[str, str]]:
    """Keys side by side that do the same, with what they do."""
    found: dict[str, list[str]] = {}
    for name, active in bindings.items():
        if active.binding.tooltip and active.enabled:
            found.setdefault(active.binding.tooltip, []).append(active.binding.key_display or _SIGNS.get(name, name))
    return [(" ".join(dict.fromkeys(names)), meaning) for meaning, names in found.items()]


_SIGNS = {
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "question_mark": "?",
    "slash": "/",
    "asterisk": "*",
    "colon": ":",
    "pageup": "PgUp",
    "pagedown": "PgDn",
}
