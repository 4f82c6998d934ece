"""Defines keys: each has an id, by which people give it another key, and a tooltip, which the help shows.

Other keys come from ``[keys]`` of the settings, by the names that the help screen shows.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module

from textual.binding import Binding
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

from ckptdoctor.errors import UsageError
from ckptdoctor.rendering.escape import escape
from ckptdoctor.tui.key_conflicts import conflict

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
    """Return a binding called ``name`` in the footer, where ``show`` puts it; its id is the name ("page-up")."""
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
    key("shift+tab", "app.focus_previous", "previous pane", "To the previous pane"),
]

# keys that work everywhere; dialogues, which shut out those of the application, have them as well
COPY = key("y", "app.copy_command", "copy", "Copy the command that does what is on the screen", show=True)
QUIT = key("q,ctrl+q", "app.quit", "quit", "Quit", show=True)
ANYWHERE = [COPY, QUIT]


_ALWAYS_QUITS = "ctrl+q"
_FUNCTION = re.compile(r"f\d+")
_MODIFIERS = ("ctrl", "alt", "shift", "super", "hyper", "meta")
_NAMES = frozenset({each.value for each in Keys} | set(KEY_NAME_REPLACEMENTS.values()))


def understood(keys: Mapping[str, str]) -> dict[str, str]:
    """Return the keys without spaces. Raises UsageError, with a sentence, for the first that is not valid.

    That is also one that something else has on the same screen. What quits keeps a key that works while somebody types.
    """
    if not keys:
        return {}
    _import_everything()
    for name, given in keys.items():
        if name not in KNOWN:
            raise UsageError(f'[keys]: unknown name "{escape(name)}"{_nearest(name, KNOWN)}')
        for key in given.split(","):
            if not _is_key(key.strip()):
                said = f'[keys]: {name} cannot have the key "{escape(key.strip())}"'
                raise UsageError(said + _nearest(key.strip(), _NAMES))
    wanted = {name: ",".join([key.strip() for key in given.split(",")]) for name, given in keys.items()}
    if "quit" in wanted and all(_is_typed(key) for key in wanted["quit"].split(",")):
        wanted["quit"] += f",{_ALWAYS_QUITS}"
    shared = conflict(wanted)
    if shared is not None:
        key, name, other = shared
        said = f'[keys]: "{key_to_character(key) or key}" would be the key of both {name} and {other}'
        raise UsageError(f"{said}. Choose another key for one of them.")
    return wanted


def _is_typed(key: str) -> bool:
    """Return whether a key writes something where there is a line to type in, or moves in it."""
    return not key.startswith(("ctrl+", "alt+")) and not _FUNCTION.fullmatch(key)


def _nearest(name: str, names: Mapping[str, str] | frozenset[str]) -> str:
    near = get_close_matches(name.lower(), names, 1)
    if near:
        return f". Did you mean {near[0]}?"
    if isinstance(names, frozenset):
        return ". Keys are named z, Z, f5, ctrl+k, question_mark and so on."
    return f". Use one of {', '.join(sorted(names))}."


def _is_key(key: str) -> bool:
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    if not all(each in _MODIFIERS for each in modifiers):
        return key in _NAMES
    return (len(last) == 1 and last.isprintable() and last != " ") or last in _NAMES or _is_sign(last)


def _is_sign(name: str) -> bool:
    """Return whether this is the name of a character, as Textual writes them: ``question_mark``."""
    return key_to_character(name) is not None and ("_" in name or name.islower())


def _import_everything() -> None:
    """Import the application, all screens and widgets: their keys are only known then."""
    import_module("ckptdoctor.tui.app")
    for package in ("ckptdoctor.tui.screens", "ckptdoctor.tui.widgets"):
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            import_module(module.name)
