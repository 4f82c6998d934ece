"""A key path says where a value is in a checkpoint: the keys and indices from the root down to it."""

from __future__ import annotations

from typing import Union

from ckptdoctor.noun import noun


@noun
class Special:
    """A step that is neither a text key nor an index: an attribute (``._metadata``) or an odd key (``(1, 2)``)."""

    text: str


Part = Union[str, int, Special]
KeyPath = tuple[Part, ...]

ROOT: KeyPath = ()
_PRINTABLE_BITS = 1024  # longer integer keys are described, not printed


def show_part(part: Part) -> str:
    """Return one step as text, not yet escaped for a terminal. ``str`` refuses integers of more than 4,300 digits."""
    if type(part) is str:  # nearly every step
        return part
    if isinstance(part, int) and part.bit_length() > _PRINTABLE_BITS:
        return f"(integer of {part.bit_length()} bits)"
    return part.text if isinstance(part, Special) else str(part)


def show_path(path: KeyPath) -> str:
    """Return a key path as people read it: ``state_dict/module.conv1.weight``; the root is ``(root)``."""
    return "/".join(map(show_part, path)) if path else "(root)"


# ---- keys of dicts as the values that they were, out of the steps of key paths


class UnknownKeyError(Exception):
    """The step only describes the key."""


def key_of(part: Part) -> object:
    """Return the key: text, an integer, or whatever plain value its description spells out. Raises UnknownKeyError."""
    if not isinstance(part, Special):
        return part
    from ast import literal_eval  # only what writes contents anew asks

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
