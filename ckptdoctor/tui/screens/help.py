"""Lists all keys that work where somebody is, and the language of the filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import ActiveBinding, BindingType
from textual.containers import VerticalScroll
from textual.keys import key_to_character
from textual.screen import ModalScreen
from textual.widgets import Static

from ckptdoctor.filters.words import RULES, WORDS
from ckptdoctor.tui.keys import COPY, key

_OTHER_KEYS = (
    "To change a key, add a table [keys] to ckptdoctor.toml, or [tool.ckptdoctor.keys] to pyproject.toml: "
    'filter = "F", list = ["T", "f2"]. The names of the keys on this screen:'
)


_FILTERS = ("filter", "show-all")  # the ids of keys of screens that have a filter


class HelpScreen(ModalScreen[None]):
    """Keys and what they do; escape closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("escape,question_mark,q,f1", "dismiss", "close", "Close the help"),
        COPY,
    ]

    def __init__(self, bindings: Mapping[str, ActiveBinding]) -> None:
        super().__init__()
        self.listed = _listed(bindings)
        self.filters = any(each.binding.id in _FILTERS for each in bindings.values())
        self.names = sorted({each.binding.id for each in bindings.values() if each.binding.id and each.binding.tooltip})

    def compose(self) -> ComposeResult:
        """Yield one text that scrolls."""
        with VerticalScroll(id="help"):
            yield Static(self._text())

    def on_mount(self) -> None:
        """Name it."""
        self.query_one("#help").border_title = "help"
        self.query_one("#help").border_subtitle = "esc closes"

    def _text(self) -> Group:
        return Group(
            Text("Keys", "bold"),
            _side_by_side(self.listed),
            Text.assemble(("\nMouse\n", "bold"), "  Click to select, double-click to open, scroll with the wheel."),
            *([_language()] if self.filters else []),
            Text.assemble(("\nOther keys\n", "bold"), f"{_OTHER_KEYS}\n{', '.join(self.names)}"),
        )


def _language() -> Group:
    """The language of the filter, where there is one."""
    return Group(Text.assemble(("\nFilter\n", "bold"), RULES, "\n"), _side_by_side(WORDS))


def _side_by_side(pairs: Iterable[Sequence[str]]) -> Padding:
    """Return two columns; what is long goes on below its own beginning."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=14)
    table.add_column()
    for name, meaning in pairs:
        table.add_row(Text(name, "bold"), Text(meaning))
    return Padding(table, (0, 0, 0, 2))


def _listed(bindings: Mapping[str, ActiveBinding]) -> list[tuple[str, str]]:
    """Return keys that do the same side by side, with what they do."""
    found: dict[str, list[str]] = {}
    for name, active in bindings.items():
        if active.binding.tooltip and active.enabled:
            found.setdefault(active.binding.tooltip, []).append(
                active.binding.key_display or _SIGNS.get(name) or _sign(name) or name
            )
    return [(" ".join(dict.fromkeys(names)), meaning) for meaning, names in found.items()]


def _sign(key: str) -> str | None:
    """Return the sign that a key is named after: ``$`` of ``dollar_sign``."""
    sign = key_to_character(key)
    return sign if sign is not None and sign.isprintable() and not sign.isspace() else None


_SIGNS = {
    "slash": "/",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "pageup": "PgUp",
    "pagedown": "PgDn",
}
