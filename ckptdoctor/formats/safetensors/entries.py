"""Reads what a header says of each tensor, held to what safetensors accepts, which is more than it ever writes.

The Rust crate reads an entry into a struct: fields may come in any order, unknown ones are skipped, a list of the
three values does as well, and a dtype may be ``{"F32": null}``. Everything else is refused, and named here.
"""

from __future__ import annotations

from typing import NamedTuple

from ckptdoctor.checkpoint import DType
from ckptdoctor.checkpoint.dtypes import BY_SAFETENSORS
from ckptdoctor.formats.safetensors.strict_json import MAX_DEPTH, Pairs
from ckptdoctor.wording import plural

# the largest number that the crate can hold (usize)
MAX_NUMBER = (1 << 64) - 1

FIELDS = ("dtype", "shape", "data_offsets")

_ENTRY_DEPTH = 2  # an unknown field of an entry lies within two objects
_SHOWN = 60
_FEW = 16  # longer shapes are checked as a whole, which takes longer for short ones


class Info(NamedTuple):
    """One tensor of the header; ``begin`` and ``end`` are bytes from the start of the data."""

    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


# a named tuple's own constructor takes several times as long
_info = tuple.__new__


def make_object(pairs: Pairs) -> object:
    """Return what the parser makes of a JSON object.

    It is an Info where the object is plain and sound, else its pairs as a tuple.
    """
    if len(pairs) != len(FIELDS):
        return tuple(pairs)
    (first, name), (second, shape), (third, offsets) = pairs
    if first != "dtype" or second != "shape" or third != "data_offsets":  # the order of every writer but JSON's own
        return _in_any_order(pairs)
    dtype = BY_SAFETENSORS.get(name) if type(name) is str else None
    if dtype is None or type(shape) is not list or type(offsets) is not list or len(offsets) != 2:
        return tuple(pairs)
    begin, end = offsets
    if type(begin) is not int or type(end) is not int or not (0 <= begin <= MAX_NUMBER and 0 <= end <= MAX_NUMBER):
        return tuple(pairs)
    if len(shape) > _FEW:
        if set(map(type, shape)) != {int} or min(shape) < 0 or max(shape) > MAX_NUMBER:
            return tuple(pairs)
    else:
        for size in shape:
            if type(size) is not int or not 0 <= size <= MAX_NUMBER:
                return tuple(pairs)
    return _info(Info, (dtype, tuple(shape), begin, end))


def _in_any_order(pairs: Pairs) -> object:
    fields = dict(pairs)
    return make_object([(name, fields[name]) for name in FIELDS]) if fields.keys() == set(FIELDS) else tuple(pairs)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_NUMBER


def info_from(value: object) -> Info | str:
    """Return the tensor that an entry describes, or what is wrong with the entry (the end of a sentence about it)."""
    if isinstance(value, Info):
        return value
    if isinstance(value, list):
        return _from_list(value)
    if not isinstance(value, tuple):
        return f"is {_shown(value)} instead of the description of a tensor"
    fields: dict[str, object] = {}
    for name, field in value:
        if name in FIELDS and name in fields:
            return f'has the field "{name}" twice'
        if name not in FIELDS and (fault := _unreadable(field)):
            return f'has an unknown field "{_cut(name)}" that {fault}'
        fields[name] = field
    for name in FIELDS:
        if name not in fields:
            return f"has no {name}"
    return _sound(*(fields[name] for name in FIELDS))


def _from_list(values: list[object]) -> Info | str:
    if len(values) != len(FIELDS):
        return f"is a list of {plural(len(values), 'value')} instead of the description of a tensor"
    return _sound(*values)


def _sound(dtype: object, shape: object, offsets: object) -> Info | str:
    found = BY_SAFETENSORS.get(name) if (name := _variant(dtype)) is not None else None
    if found is None:
        return f"has the dtype {_shown(dtype)}, which safetensors does not know"
    if not isinstance(shape, list):
        return f"has the shape {_shown(shape)}, which is not a list"
    if not isinstance(offsets, list) or len(offsets) != 2:
        return f"has the data_offsets {_shown(offsets)}, which are not two numbers"
    for what, numbers in (("shape", shape), ("data_offsets", offsets)):
        for number in numbers:
            if not _is_number(number):
                return f"has {_shown(number)} in its {what}, where only integers of up to 64 bits are allowed"
    return Info(found, tuple(shape), offsets[0], offsets[1])


def _variant(value: object) -> str | None:
    """Return the name of a dtype, in either of the two forms in which an enum can be written."""
    if isinstance(value, tuple) and len(value) == 1 and not isinstance(value, Info):
        name, content = value[0]
        return name if content is None else None
    return value if isinstance(value, str) else None


def _unreadable(value: object) -> str:
    """Return why safetensors cannot even skip a value.

    It is nested too deep, or has a number that no float can hold.
    """
    stack = [(value, _ENTRY_DEPTH + 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, (list, tuple)):
            if depth > MAX_DEPTH:
                return f"is nested more than {MAX_DEPTH} levels deep"
            stack.extend([(child, depth + 1) for child in _inside(node)])
        elif _overflows(node):
            return "has a number out of range"
    return ""


def _inside(node: list[object] | tuple[object, ...]) -> list[object]:
    if isinstance(node, Info):
        return [list(node.shape), [node.begin, node.end]]
    return node if isinstance(node, list) else [pair[1] for pair in node]  # type: ignore[index]  # (key, value) pairs


def _overflows(value: object) -> bool:
    if not isinstance(value, (int, float)):
        return False
    try:
        return float(value) in (float("inf"), float("-inf"))
    except OverflowError:
        return True


def _shown(value: object) -> str:
    """Return a value in a message, whatever its size."""
    if isinstance(value, Info):
        return "an object"
    if isinstance(value, tuple):
        return "an object" if value else "an empty object"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        return f"an integer of {value.bit_length()} bits"
    return f'"{_cut(value)}"' if isinstance(value, str) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
