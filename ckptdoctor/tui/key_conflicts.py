"""Finds keys that would do two things at once: of one screen, with what it is made of and the application."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from textual.app import App
from textual.binding import Binding
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

_OURS = "ckptdoctor."

Keys = dict[str, frozenset[str]]  # of each action of a chain, by its id


def conflict(keys: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Return a key and two actions that would share it on one screen with these ``keys``; None where none would.

    The application and all screens have to be imported. What shares a key without ``keys``, such as escape in a line
    and on its screen, is meant to.
    """
    given = {name: _split(each) for name, each in keys.items()}
    for usual in _chains():
        wanted = {name: given.get(name, each) for name, each in usual.items()}
        for name in [each for each in wanted if each in given]:
            for other in wanted:
                shared = wanted[name] & wanted[other] if other != name else frozenset()
                shared -= usual[name] & usual[other]
                if shared:
                    return min(shared), name, other
    return None


def _chains() -> Iterator[Keys]:
    """Yield the actions that keys have at one moment: of what has the focus, of its screen, and of the application."""
    application = {name: each for app in _below(App) if _is_ours(app) for name, each in _own(app).items()}
    for screen in _below(Screen):
        if _is_ours(screen):
            around = {**({} if issubclass(screen, ModalScreen) else application), **_own(screen)}
            yield around
            for widget in _made_of(screen, set()):
                yield {**around, **_own(widget)}


def _own(cls: type) -> Keys:
    found: Keys = {}
    for base in cls.__mro__:
        for binding in vars(base).get("BINDINGS", ()):
            if isinstance(binding, Binding) and binding.id is not None:
                found.setdefault(binding.id, _split(binding.key))
    return found


def _split(keys: str) -> frozenset[str]:
    """Return keys by the names that Textual has for them."""
    return frozenset([each.key for each in Binding.make_bindings([Binding(keys, "")])])


def _below(cls: type) -> Iterator[type]:
    classes: list[type] = cls.__subclasses__()
    for each in classes:
        yield each
        yield from _below(each)


def _made_of(cls: type, seen: set[type]) -> set[type]:
    """Return the widgets that a screen or a widget may have: those that its module knows, and theirs."""
    for base in cls.__mro__:
        there = vars(sys.modules[base.__module__]) if _is_ours(base) else {}
        for known in list(there.values()):
            if isinstance(known, type) and _is_part(known) and known not in seen:
                seen.add(known)
                _made_of(known, seen)
    return seen


def _is_part(cls: type) -> bool:
    """Return whether this is a widget of ours that can be on a screen, and not what several of them are made from."""
    return _is_ours(cls) and issubclass(cls, Widget) and not issubclass(cls, Screen) and not cls.__subclasses__()


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith(_OURS)
