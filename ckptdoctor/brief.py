"""Writes what an object says of itself in a session: at most a screen; and, for comparing, all of it.

``noun.noun`` gives every noun ``brief`` as its ``repr``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from itertools import islice
from typing import Any

from ckptdoctor.wording import PRINTABLE_BITS, count, first_few

# a screen: 24 lines of 80 characters
MOST_LINES = 24
_WIDTH = 80
_LINE = 78  # with what closes it
_FIRST = 3  # items of a collection that are shown
_DEPTH = 3  # objects in objects; what lies deeper is only named
_SHORTEST = 12  # nothing is cut to less than this
_LENGTH = 14  # what it takes to say how many items there are: (50,000: …)


def brief(one: object) -> str:
    """Return ``Name(field=value, …)`` in a line, or in a line for each field.

    Fields that have their default are left out.
    """
    return _in_lines(type(one).__qualname__, _told(one))


def brief_error(error: BaseException, message: str) -> str:
    """Return the same for an error: its message, cut."""
    return f"{type(error).__qualname__}({_text(message, _WIDTH * (MOST_LINES - 4))})"


def in_full(value: object) -> str:
    """Return everything about a value as text, of any length.

    Two texts are equal only where a reader would take the values for the same.

    Unlike with ``==``, NaN is itself, and True is not 1. Fields that are not part of what an object says are left out.
    """
    if type(value) in _PLAIN:
        return repr(value)
    if type(value) is tuple or type(value) is list:
        inner = ", ".join([repr(item) if type(item) in _PLAIN else in_full(item) for item in value])
        return f"({inner},)" if type(value) is tuple else f"[{inner}]"
    if type(value) is dict:
        return f"{{{', '.join([f'{in_full(key)}: {in_full(item)}' for key, item in value.items()])}}}"
    names = _fields_of(type(value))
    if names is None:
        return repr(value)
    told = [f"{name}={in_full(getattr(value, name))}" for name in names]
    return f"{type(value).__qualname__}({', '.join(told)})"


_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})  # most of what there is, which has no parts
_fields: dict[type, tuple[str, ...] | None] = {}


def _fields_of(kind: type) -> tuple[str, ...] | None:
    """Return the fields that objects of a class say; None where it has none."""
    if kind not in _fields:
        _fields[kind] = tuple([each.name for each in fields(kind) if each.repr]) if is_dataclass(kind) else None
    return _fields[kind]


def _in_lines(name: str, told: list[tuple[str, object]]) -> str:
    line = f"{name}({_named(told, _LINE - len(name) - 2, 1)})"
    if len(line) <= _LINE and len(told) <= _FIRST:
        return line
    rows = [f"    {key}={_shown(value, _LINE - 6 - len(key), 1)}," for key, value in told]
    room = MOST_LINES - 2
    if len(rows) > room:
        rows = first_few(rows, room - 1, before="    … ")
    return "\n".join([f"{name}(", *rows, ")"])


def _told(one: object) -> list[tuple[str, object]]:
    """Return the fields that say something, in their order."""
    assert is_dataclass(one)
    pairs = [(each, getattr(one, each.name, MISSING)) for each in fields(one)]
    return [(each.name, value) for each, value in pairs if each.repr and not _is_usual(each, value)]


def _is_usual(field: Field[Any], value: object) -> bool:
    """Return whether a field has its default: one that is cheap to compare."""
    if value is MISSING or value is field.default:
        return True
    if type(value) in (int, str, float):
        return type(value) is type(field.default) and value == field.default
    empty = isinstance(value, (tuple, list, dict, frozenset)) and not value
    return empty and (field.default is not MISSING or field.default_factory is not MISSING)


def _shown(value: object, room: int, depth: int) -> str:
    """Return a value in about ``room`` characters, and never more."""
    if isinstance(value, Enum):
        return _cut(f"{type(value).__name__}.{value.name}", room)
    if isinstance(value, str):
        return _text(value, room)
    if value is None or isinstance(value, (bool, float)):
        return _cut(repr(value), room)
    if isinstance(value, int):
        return _cut(count(value) if value.bit_length() > PRINTABLE_BITS else repr(value), room)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _cut(f"<{len(value):,} bytes>", room)
    if is_dataclass(value):
        name = type(value).__qualname__
        inside = "…" if depth >= _DEPTH else _values(_told(value), room - len(name) - 2, depth + 1)
        return _cut(f"{name}({inside})", room)
    if isinstance(value, Mapping):
        each = max(_SHORTEST, room // _FIRST // 2 - 2)
        pairs = [f"{_shown(k, each, _DEPTH)}: {_shown(v, each, _DEPTH)}" for k, v in islice(value.items(), _FIRST)]
        return _several("{}", pairs, len(value), room)
    if isinstance(value, (tuple, list, Set)):
        return _several(_brackets(value), _first(value, room, depth), len(value), room)
    return _cut(f"<{type(value).__qualname__}>", room)


def _brackets(value: object) -> str:
    return "()" if isinstance(value, tuple) else "[]" if isinstance(value, list) else "{}"


def _first(items: Iterable[object], room: int, depth: int) -> list[str]:
    """Return the first items, all of which get what room there is: two objects, or three of anything else."""
    taken = list(islice(items, _FIRST))
    if len(taken) == _FIRST and is_dataclass(taken[0]):
        taken.pop()
    each = max(_SHORTEST, (room - _LENGTH) // max(1, len(taken)) - 2)
    return [_shown(item, each, depth) for item in taken]


def _several(brackets: str, shown: list[str], number: int, room: int) -> str:
    """Return some items in brackets, and how many there are where not all are shown."""
    opening, closing = brackets[0], brackets[1]
    inner = ", ".join(shown)
    if number > len(shown):
        return _cut(f"{opening}{number:,}: {inner}", room - 4) + f", …{closing}"
    return _cut(f"{opening}{inner}{',' if brackets == '()' and number == 1 else ''}", room - 1) + closing


def _named(told: list[tuple[str, object]], room: int, depth: int) -> str:
    return ", ".join([f"{name}={_shown(value, room - len(name) - 1, depth)}" for name, value in told])


def _values(told: list[tuple[str, object]], room: int, depth: int) -> str:
    """Return the first fields of an object in another one: as many as there is room for, without their names."""
    shown: list[str] = []
    for index, (_, value) in enumerate(told):
        left = room - sum([len(each) + 2 for each in shown]) - (3 if index < len(told) - 1 else 0)
        if (left < _SHORTEST and index) or left < 1:
            return ", ".join([*shown, "…"])
        shown.append(_shown(value, left, depth))
    return ", ".join(shown)


def _text(value: str, room: int) -> str:
    """Return text as Python writes it, or its beginning and how long it is."""
    whole = repr(value[: room + 1])
    if len(value) <= room and len(whole) <= room:
        return whole
    length = f" ({len(value):,} characters)"
    return _cut(whole, room - len(length)) + length if room > 2 * len(length) else _cut(whole, room)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: max(room, 1) - 1]}…"
