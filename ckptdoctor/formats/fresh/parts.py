"""Keys of dicts as the values that they were, out of the steps of key paths."""

from __future__ import annotations

from ast import literal_eval

from ckptdoctor.checkpoint import Part, Special


class UnknownKeyError(Exception):
    """The step only describes the key."""


def key_of(part: Part) -> object:
    """The key: text, an integer, or whatever plain value its description spells out. Raises UnknownKeyError."""
    if not isinstance(part, Special):
        return part
    try:
        value: object = literal_eval(part.text)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise UnknownKeyError(part.text) from error
    if repr(value) != part.text or not _plain(value):
        raise UnknownKeyError(part.text)
    return value


def _plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, bytes))
