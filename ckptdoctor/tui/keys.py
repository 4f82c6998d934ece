"""Keys: each has an id, by which people give it another key, and a tooltip, which the help screen shows."""

from __future__ import annotations

from textual.binding import Binding

FOOTER = 8  # keys that the footer shows at most
KNOWN: dict[str, str] = {}  # the ids of all bindings made so far, and what they do


def key(
    keys: str,
    action: str,
    name: str,
    tooltip: str,
    *,
    show: bool = False,
    display: str | None = None,
) -> Binding:
    """A binding called ``name`` in the footer, where ``show`` puts it there; its id is the name ("page-up")."""
    identifier = name.replace(" ", "-")
    KNOWN.setdefault(identifier, tooltip)
    return Binding(keys, action, name, show=show, key_display=display, tooltip=tooltip, id=identifier)


MOVING = [
    key("up,k", "move(-1)", "up", "One line up", display="↑"),
    key("down,j", "move(1)", "down", "One line down", display="↓"),
    key("pageup,ctrl+b", "page(-1)", "page up", "One page up"),
    key("pagedown,ctrl+f", "page(1)", "page down", "One page down"),
    key("home,g", "first", "first", "To the first line"),
    key("end,G", "last", "last", "To the last line"),
]

# the ids of keys that only move a cursor: they need no line among the commands, and may follow each other at any pace
MOVES = frozenset(
    {"up", "down", "page-up", "page-down", "first", "last", "unfold", "fold"}
    | {"left", "right", "page-left", "page-right", "first-column", "last-column"}
)

PANES = [
    key("tab", "app.focus_next", "next pane", "To the next pane"),
    key("shift+tab", "app.focus_previous", "previous pane", "To the pane before"),
]

# keys that work everywhere; dialogues, which shut out those of the application, have them as well
COPY = key("y", "app.copy_command", "copy", "Copy the command line that does what is on the screen", show=True)
QUIT = key("q,ctrl+q", "app.quit", "quit", "Leave, whatever is going on", show=True)
ANYWHERE = [COPY, QUIT]
