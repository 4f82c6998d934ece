"""Tells which noun an object of the graph is, a mapping, a sequence or an object of some class, and what it holds."""

from __future__ import annotations

from enum import Enum

from ckptdoctor.checkpoint import Named, Part, Special
from ckptdoctor.formats.torch.read.values import CALLS, Filling, bare, call, filling, full_name, layout_name, text
from ckptdoctor.noun import field, noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, String, Tuple, Value

ORDERED_DICT = "collections.OrderedDict"
_DEFAULT_DICT = "collections.defaultdict"
_COUNTER = "collections.Counter"
_SIZE = "torch.Size"
# these give back the list or dict that they are given; beside it, how many arguments they take
_TAGGED = {
    "torch.jit._pickle.restore_type_tag": 2,
    **{f"torch.jit._pickle.build_{kind}list": 1 for kind in ("int", "tensor", "double", "bool")},
}
_SETS = {"builtins.set": "set", "builtins.frozenset": "frozenset"}

DICTS = frozenset({op.EMPTY_DICT, op.DICT})
LISTS = frozenset({op.EMPTY_LIST, op.LIST})


class Kind(Enum):
    """The three nouns that hold others."""

    MAPPING = "mapping"
    SEQUENCE = "sequence"
    OBJECT = "object"


@noun(frozen=False)
class ObjectShape:
    """What an object holds. ``found`` was gathered from ``filled``: the object, or the one list or dict in its call.

    ``pairs`` are the [key, value] lists of an OrderedDict of Python 2. ``extra`` are attributes that a call sets.
    """

    kind: Kind
    name: str
    found: Filling
    filled: Made | Tuple | None
    arguments: list[Value] = field(default_factory=list)
    extra: list[tuple[str, Value]] = field(default_factory=list)
    pairs: list[Value] | None = None


def object_shape(node: Made) -> ObjectShape:
    """Return the noun that an object is, by how it was made and what was done to it since."""
    if node.op in CALLS:
        return _of_call(node)
    found = filling(node)
    if node.op in DICTS:
        kind, name = (Kind.MAPPING, "dict") if _only(found, pairs=True) else (Kind.OBJECT, "builtins.dict")
    elif node.op in LISTS:
        kind, name = (Kind.SEQUENCE, "list") if _only(found, items=True) else (Kind.OBJECT, "builtins.list")
    else:
        kind, name = (Kind.SEQUENCE, "set") if _only(found, items=True) else (Kind.OBJECT, "builtins.set")
    return ObjectShape(kind, name, found, node)


def _of_call(node: Made) -> ObjectShape:
    callee, arguments, keywords = call(node)
    name = full_name(callee)
    found = filling(node)
    if keywords is not None:
        arguments = [*arguments, keywords] if holds(keywords) else arguments
    else:
        known = _tagged(name, arguments, found) or _sequence(name, arguments, found)
        known = known or _mapping(node, name, arguments, found)
        if known is not None:
            return known
    if name is None:
        name, arguments = "(result of a call)", [callee, *arguments]
    return ObjectShape(Kind.OBJECT, name, found, node, arguments)


def _tagged(name: str | None, arguments: list[Value], found: Filling) -> ObjectShape | None:
    """Return the list or dict to which the pickler of C++ (``torch::pickle_save``, TorchScript) added its type."""
    if name not in _TAGGED or len(arguments) != _TAGGED[name] or found.keys or not _only(found):
        return None
    given = bare(arguments[0])
    if type(given) is not Made or given.op not in (*DICTS, *LISTS):
        return None
    shape = object_shape(given)
    return shape if shape.kind is not Kind.OBJECT else None


def _sequence(name: str | None, arguments: list[Value], found: Filling) -> ObjectShape | None:
    """Return a set, frozenset or ``torch.Size`` that is made by a call with a list or tuple."""
    if len(arguments) > 1 or not _only(found):
        return None
    if name != _SIZE and name not in _SETS:
        return None
    kind = _SETS.get(name, _SIZE)
    if not arguments:
        return ObjectShape(Kind.SEQUENCE, kind, found, None)
    inside = _list(arguments[0])
    if inside is None or (name == _SIZE and not isinstance(inside, Tuple)):
        return None
    items = inside.items if isinstance(inside, Tuple) else filling(inside).items
    return ObjectShape(Kind.SEQUENCE, kind, Filling(items=items), inside)


def _mapping(node: Made, name: str | None, arguments: list[Value], found: Filling) -> ObjectShape | None:
    """Return a dict of a class: one that keys were set in, or that is known to be one."""
    if name is None or found.items:
        return None
    if not arguments and (found.keys or name in (ORDERED_DICT, _COUNTER)):
        return ObjectShape(Kind.MAPPING, name, found, node)
    if len(arguments) != 1:
        return None
    given = bare(arguments[0])
    if name == _DEFAULT_DICT:
        extra = [] if given is None else [("default_factory", arguments[0])]
        return ObjectShape(Kind.MAPPING, name, found, node, extra=extra)
    if found.keys:
        return None
    if name == _COUNTER and type(given) is Made and given.op in DICTS:
        return ObjectShape(Kind.MAPPING, name, filling(given), given)
    return _of_pairs(name, given, found) if name == ORDERED_DICT else None


def _of_pairs(name: str, given: Value, found: Filling) -> ObjectShape | None:
    """Read ``OrderedDict([[key, value], …])``, as Python 2 wrote it."""
    outer = _list(given)
    if not isinstance(outer, Made):
        return None
    pairs = filling(outer).items
    for pair in pairs:
        inside = _list(pair)
        inner = [] if inside is None else inside.items if isinstance(inside, Tuple) else filling(inside).items
        if len(inner) != 2:
            return None
        found.keys.append(inner[0])
        found.values.append(inner[1])
    return ObjectShape(Kind.MAPPING, name, found, outer, pairs=pairs)


def _list(value: Value) -> Made | Tuple | None:
    """Return a tuple, or a list to which nothing was done but appending."""
    value = bare(value)
    if type(value) is Tuple:
        return value
    if type(value) is Made and value.op in LISTS and _only(filling(value), items=True):
        return value
    return None


def holds(keywords: Value) -> bool:
    """Return whether there are keyword arguments in what a call is given as such."""
    keywords = bare(keywords)
    return type(keywords) is not Made or bool(filling(keywords).keys)


def _only(found: Filling, *, pairs: bool = False, items: bool = False) -> bool:
    """Return whether nothing was put in but what a container of this kind takes."""
    return not (found.keys and not pairs) and not (found.items and not items) and not found.states


def is_dict(value: Value) -> bool:
    """Return whether a value is a dict or OrderedDict.

    As an object's state, its entries are directly below the object.
    """
    value = bare(value)
    if type(value) is not Made:
        return False
    if value.op in CALLS and full_name(value.items[0]) != ORDERED_DICT:
        return False
    return object_shape(value).kind is Kind.MAPPING


# ---- calls that only make a plain value


def plain_value(node: Made) -> bytes | Named | None:
    """Return the value that a call gives where that can be told without calling.

    It is bytes as protocol 2 writes them, or a layout.
    """
    if node.steps is not None and any(step.payload for step in node.steps):
        return None
    callee, arguments, keywords = call(node)
    name = full_name(callee)
    if name == "_codecs.encode" and len(arguments) == 2:
        return _encoded(arguments)
    if name == "builtins.bytes" and not arguments and keywords is None:
        return b""
    if name == "torch.serialization._get_layout":
        layout = layout_name(node)
        return None if layout is None else Named(f"torch.{layout}")
    return None


def _encoded(arguments: list[Value]) -> bytes | None:
    value = bare(arguments[0])
    if not isinstance(value, String) or not isinstance(value.value, str) or text(arguments[1]) != "latin1":
        return None
    try:
        return value.value.encode("latin1")
    except UnicodeEncodeError:
        return None


# ---- keys of dicts as steps of key paths, without hashing what the file could have chosen to collide


# CPython hashes an integer modulo this prime, so that only smaller ones have hashes of their own
_HASH_MODULUS = (1 << 61) - 1

# more digits than this of an integer are not spelt out
_PRINTABLE_BITS = 1024

# a tuple is spelt out to this depth and this many items
_SPELT_DEPTH = 3
_SPELT_ITEMS = 16


def part_of(key: Value) -> Part:
    """Return the step that a key of a dict is: text and integers as they are, anything else as it would be printed."""
    if type(key) is String and type(key.value) is str:
        return key.value
    key = bare(key)
    if type(key) is int and -_HASH_MODULUS < key < _HASH_MODULUS:
        return key
    return Special(_spelt(key, _SPELT_DEPTH))


def _spelt(key: Value, depth: int) -> str:
    key = bare(key)
    if isinstance(key, String):
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
    """Return the steps of all keys of a dict, and for each key that repeats an earlier one (by index) that one's index.

    Equal text and equal numbers (``1``, ``1.0`` and ``True``) are one key, as in Python. Other keys are never taken
    for equal: where two would be printed alike, the later ones are numbered.
    """
    texts: list[Part] = [key.value for key in keys if type(key) is String and type(key.value) is str]
    if len(texts) == len(set(texts)) == len(keys):  # as in nearly every dict of tensors
        return texts, {}
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
    """Return what two keys share exactly when Python takes them for equal.

    It is ``(index,)`` for keys that are not compared.
    """
    key = bare(key)
    if isinstance(key, String):
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
