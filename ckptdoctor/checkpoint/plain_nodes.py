"""Plain data as nodes of a tree: what a value given to an edit looks like once it has been written and read again."""

from __future__ import annotations

from ckptdoctor.checkpoint import Mapping, Node, Opaque, Part, Sequence, Special
from ckptdoctor.errors import RefusedError

# CPython hashes integers modulo this prime; readers spell out those beyond it
_OWN_HASHES = (1 << 61) - 1


def node_of(value: object) -> Node:
    """The node for None, booleans, numbers (complex ones too), text, bytes, and lists, tuples and dicts of such.

    Raises RefusedError for anything else.
    """
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, complex):
        return Opaque("builtins.complex", (value.real, value.imag))
    if isinstance(value, (list, tuple)):
        return Sequence("list" if isinstance(value, list) else "tuple", tuple([node_of(item) for item in value]))
    if isinstance(value, dict):
        return Mapping("dict", tuple([(part_of(key), node_of(item)) for key, item in value.items()]))
    raise RefusedError(f"A {type(value).__name__} is not plain data, and cannot be put into a checkpoint.")


def part_of(key: object) -> Part:
    """The step that a dict key is in a key path: text and integers as they are, anything else as it is printed."""
    if isinstance(key, str) or (type(key) is int and abs(key) < _OWN_HASHES):
        return key
    return Special(repr(key))
