"""Keys of dicts as steps of key paths, without hashing what the file could have chosen to collide."""

from __future__ import annotations

from ckptdoctor.checkpoint import Part, Special
from ckptdoctor.formats.torch.read.objects import plain_value
from ckptdoctor.formats.torch.read.values import CALLS, bare, full_name
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, Text, Tuple, Value

# CPython hashes an integer modulo this prime, so that only smaller ones have hashes of their own
_HASH_MODULUS = (1 << 61) - 1

# more digits than this of an integer are not spelt out
_PRINTABLE_BITS = 1024

# a tuple is spelt out to this depth and this many items
_SPELT_DEPTH = 3
_SPELT_ITEMS = 16


def part_of(key: Value) -> Part:
    """The step that a key of a dict is: text and integers as they are, anything else as it would be printed."""
    if type(key) is Text and type(key.value) is str:
        return key.value
    key = bare(key)
    if type(key) is int and -_HASH_MODULUS < key < _HASH_MODULUS:
        return key
    return Special(_spelt(key, _SPELT_DEPTH))


def _spelt(key: Value, depth: int) -> str:
    key = bare(key)
    if isinstance(key, Text):
        return repr(key.value)
    if type(key) is int and key.bit_length() > _PRINTABLE_BITS:
        return f"(integer of {key.bit_length()} bits)"
    if key is None or isinstance(key, (bool, int, float)):
        return repr(key)
    if type(key) is Tuple:
        return _spelt_tuple(key, depth)
    if type(key) is Made and key.op in CALLS:
        value = plain_value(key)
        return repr(value) if isinstance(value, bytes) else f"<{full_name(key.items[0]) or 'object'}>"
    return f"<{full_name(key) or 'object'}>"


def _spelt_tuple(key: Tuple, depth: int) -> str:
    if depth == 0 or len(key.items) > _SPELT_ITEMS:
        return f"(tuple of {len(key.items)})"
    inside = ", ".join([_spelt(item, depth - 1) for item in key.items])
    closed = f"({inside},)" if len(key.items) == 1 else f"({inside})"
    return f"frozenset{closed}" if key.op == op.FROZENSET else closed


def parts_of(keys: list[Value]) -> tuple[list[Part], dict[int, int]]:
    """The steps of all keys of a dict, and for each key that repeats an earlier one (by index) that one's index.

    Equal text and equal numbers (``1``, ``1.0`` and ``True``) are one key, as in Python. Other keys are never taken
    for equal: where two would be printed alike, the later ones are numbered.
    """
    parts = [part_of(key) for key in keys]
    if len(set(parts)) == len(parts) and all(type(part) is not Special for part in parts):
        return parts, {}
    first: dict[object, int] = {}
    repeats: dict[int, int] = {}
    for index, key in enumerate(keys):
        identity = _identity(key, index)
        if identity in first:
            repeats[index] = first[identity]
        else:
            first[identity] = index
    return _distinct(parts, repeats), repeats


def _identity(key: Value, index: int) -> object:
    """What two keys share exactly when Python takes them for equal; ``(index,)`` for keys that are not compared."""
    key = bare(key)
    if isinstance(key, Text):
        return key.value
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    if isinstance(key, int):
        return int(key) if -_HASH_MODULUS < key < _HASH_MODULUS else ("integer", hex(key))
    if key is None:
        return ("none", "")
    return ("float", repr(key)) if isinstance(key, float) and key == key else ("other", str(index))


def _distinct(parts: list[Part], repeats: dict[int, int]) -> list[Part]:
    taken: set[Part] = set()
    counts: dict[Part, int] = {}
    for index, part in enumerate(parts):
        if index in repeats:
            continue
        if part in taken:
            counts[part] = counts.get(part, 1) + 1
            shown = part.text if isinstance(part, Special) else str(part)
            parts[index] = part = Special(f"{shown} #{counts[part]}")
        taken.add(part)
    return parts
