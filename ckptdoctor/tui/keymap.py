"""Other keys for what the browser does: ``[keys]`` of the settings, by the names that the help screen shows."""

from __future__ import annotations

import pkgutil
import unicodedata
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module

from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from ckptdoctor.errors import UsageError
from ckptdoctor.report.escape import escape
from ckptdoctor.tui.keys import KNOWN

_MODIFIERS = ("ctrl", "alt", "shift", "super", "hyper", "meta")
_NAMES = frozenset({each.value for each in Keys} | set(KEY_NAME_REPLACEMENTS.values()))


def understood(keys: Mapping[str, str]) -> dict[str, str]:
    """The keys, which are all right. Raises UsageError with a sentence for the first that is not."""
    if keys:
        _import_everything()
    for name, given in keys.items():
        if name not in KNOWN:
            raise UsageError(f"[keys]: nothing is called “{escape(name)}”{_nearest(name, KNOWN)}")
        for key in given.split(","):
            if not _is_key(key.strip()):
                said = f"[keys]: {name} cannot have the key “{escape(key.strip())}”"
                raise UsageError(said + _nearest(key.strip(), _NAMES))
    return {name: ",".join([key.strip() for key in given.split(",")]) for name, given in keys.items()}


def _nearest(name: str, names: Mapping[str, str] | frozenset[str]) -> str:
    near = get_close_matches(name.lower(), names, 1)
    if near:
        return f": did you mean {near[0]}?"
    if isinstance(names, frozenset):
        return ": keys are called z, Z, f5, ctrl+k, question_mark, and so on."
    return f". There are {', '.join(sorted(names))}."


def _is_key(key: str) -> bool:
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    if not all(each in _MODIFIERS for each in modifiers):
        return key in _NAMES
    return (len(last) == 1 and last.isprintable() and last != " ") or last in _NAMES or _is_sign(last)


def _is_sign(name: str) -> bool:
    """Whether it is the name of a character, as Textual writes them: ``question_mark``."""
    try:
        unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return False
    return "_" in name or name.islower()


def _import_everything() -> None:
    """Keys are known once the screens and widgets that have them are imported."""
    for package in ("ckptdoctor.tui.screens", "ckptdoctor.tui.widgets"):
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            import_module(module.name)
