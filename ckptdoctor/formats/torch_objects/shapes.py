"""Which noun an object of the graph is: a mapping, a sequence, or an object of some class; and what it holds."""

from __future__ import annotations

from enum import Enum

from ckptdoctor.formats.torch_objects.steps import Filling, filling
from ckptdoctor.formats.torch_objects.values import CALLS, bare, call, full_name
from ckptdoctor.noun import field, noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, Tuple, Value

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
class Shape:
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


def shape_of(node: Made) -> Shape:
    """The noun that an object is, by how it was made and what was done to it since."""
    if node.op in CALLS:
        return _of_call(node)
    found = filling(node)
    if node.op in DICTS:
        kind, name = (Kind.MAPPING, "dict") if _only(found, pairs=True) else (Kind.OBJECT, "builtins.dict")
    elif node.op in LISTS:
        kind, name = (Kind.SEQUENCE, "list") if _only(found, items=True) else (Kind.OBJECT, "builtins.list")
    else:
        kind, name = (Kind.SEQUENCE, "set") if _only(found, items=True) else (Kind.OBJECT, "builtins.set")
    return Shape(kind, name, found, node)


def _of_call(node: Made) -> Shape:
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
    return Shape(Kind.OBJECT, name, found, node, arguments)


def _tagged(name: str | None, arguments: list[Value], found: Filling) -> Shape | None:
    """The list or dict to which the pickler of C++ (``torch::pickle_save``, TorchScript) added its type."""
    if name not in _TAGGED or len(arguments) != _TAGGED[name] or found.keys or not _only(found):
        return None
    given = bare(arguments[0])
    if type(given) is not Made or given.op not in (*DICTS, *LISTS):
        return None
    shape = shape_of(given)
    return shape if shape.kind is not Kind.OBJECT else None


def _sequence(name: str | None, arguments: list[Value], found: Filling) -> Shape | None:
    """A set, frozenset or ``torch.Size`` that is made by a call with a list or tuple."""
    if len(arguments) > 1 or not _only(found):
        return None
    if name != _SIZE and name not in _SETS:
        return None
    kind = _SETS.get(name, _SIZE)
    if not arguments:
        return Shape(Kind.SEQUENCE, kind, found, None)
    inside = _list(arguments[0])
    if inside is None or (name == _SIZE and not isinstance(inside, Tuple)):
        return None
    items = inside.items if isinstance(inside, Tuple) else filling(inside).items
    return Shape(Kind.SEQUENCE, kind, Filling(items=items), inside)


def _mapping(node: Made, name: str | None, arguments: list[Value], found: Filling) -> Shape | None:
    """A dict of a class: one that keys were set in, or that is known to be one."""
    if name is None or found.items:
        return None
    if not arguments and (found.keys or name in (ORDERED_DICT, _COUNTER)):
        return Shape(Kind.MAPPING, name, found, node)
    if len(arguments) != 1:
        return None
    given = bare(arguments[0])
    if name == _DEFAULT_DICT:
        extra = [] if given is None else [("default_factory", arguments[0])]
        return Shape(Kind.MAPPING, name, found, node, extra=extra)
    if found.keys:
        return None
    if name == _COUNTER and type(given) is Made and given.op in DICTS:
        return Shape(Kind.MAPPING, name, filling(given), given)
    return _of_pairs(name, given, found) if name == ORDERED_DICT else None


def _of_pairs(name: str, given: Value, found: Filling) -> Shape | None:
    """``OrderedDict([[key, value], …])``, as Python 2 wrote it."""
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
    return Shape(Kind.MAPPING, name, found, outer, pairs=pairs)


def _list(value: Value) -> Made | Tuple | None:
    """A tuple, or a list to which nothing was done but appending."""
    value = bare(value)
    if type(value) is Tuple:
        return value
    if type(value) is Made and value.op in LISTS and _only(filling(value), items=True):
        return value
    return None


def holds(keywords: Value) -> bool:
    """Whether there are keyword arguments in what a call is given as such."""
    keywords = bare(keywords)
    return type(keywords) is not Made or bool(filling(keywords).keys)


def _only(found: Filling, *, pairs: bool = False, items: bool = False) -> bool:
    """Whether nothing was put in but what a container of this kind takes."""
    return not (found.keys and not pairs) and not (found.items and not items) and not found.states


def is_dict(value: Value) -> bool:
    """Whether a value is a dict or OrderedDict. As an object's state, its entries lie directly under the object."""
    value = bare(value)
    if type(value) is not Made:
        return False
    if value.op in CALLS and full_name(value.items[0]) != ORDERED_DICT:
        return False
    return shape_of(value).kind is Kind.MAPPING
