"""Reads values of a pickle graph: numbers, text, names, what a call calls, and what a container holds."""

from __future__ import annotations

from ckptdoctor.checkpoint.checkpoint import python3_name
from ckptdoctor.checkpoint.dtypes import BY_NAME, DType
from ckptdoctor.noun import field, noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Constant, Extension, Global, Made, PersistentId, Popped, String, Tuple, Value

_CALLED_WITH_TUPLE = frozenset({op.REDUCE, op.NEWOBJ, op.NEWOBJ_EX})
_CALLED_WITH_ITEMS = frozenset({op.OBJ, op.INST})
CALLS = _CALLED_WITH_TUPLE | _CALLED_WITH_ITEMS


def bare(value: Value) -> Value:
    """Return the value itself: without values discarded before it, and a constant without the way it was written."""
    while isinstance(value, Popped):
        value = value.result
    return value.value if type(value) is Constant else value


def text(value: Value) -> str | None:
    """Return the text of a string; bytes that are ASCII, as Python 2 wrote its strings, count as text."""
    value = bare(value)
    if not isinstance(value, String):
        return None
    if isinstance(value.value, str):
        return value.value
    return value.value.decode("ascii") if value.value.isascii() else None


def integer(value: Value) -> int | None:
    """Return the integer, None for anything else (booleans too)."""
    value = bare(value)
    return value if type(value) is int else None


def items(value: Value) -> list[Value] | None:
    """Return the items of a tuple; of a ``torch.Size`` those of the tuple it is made of. None for anything else."""
    value = bare(value)
    if type(value) is Made and value.op == op.REDUCE and full_name(value.items[0]) == "torch.Size":
        given = bare(value.items[1])
        value = bare(given.items[0]) if type(given) is Tuple and len(given.items) == 1 else None
    return value.items if type(value) is Tuple and value.op != op.FROZENSET else None


def full_name(value: Value) -> str | None:
    """Return ``module.name`` of a class or function, or None for anything else.

    Legacy files keep the class of an nn.Module together with its source: then it is the name of that class.
    """
    value = bare(value)
    if type(value) is PersistentId:
        inside = items(value.id)
        if inside is None or len(inside) < 2 or text(inside[0]) != "module":
            return None
        value = bare(inside[1])
    if type(value) is Global:
        return python3_name(value.module, value.name)
    if type(value) is Extension:
        return f"copyreg extension {value.code}"
    return None


def call(node: Made) -> tuple[Value, list[Value], Value]:
    """Return the callee, positional arguments and keyword arguments (None without) of an object made by a call."""
    if node.op in _CALLED_WITH_ITEMS:
        return node.items[0], node.items[1:], None
    arguments = items(node.items[1])
    given = [node.items[1]] if arguments is None else arguments
    return node.items[0], given, node.items[2] if node.op == op.NEWOBJ_EX else None


def dtype(value: Value) -> DType | None:
    """Return the dtype that ``torch.float32`` and its like name."""
    name = full_name(value)
    return BY_NAME.get(name[6:]) if name is not None and name.startswith("torch.") else None


# ---- what was put into a container or object after it was made


PAIR_STEPS = frozenset({op.SETITEM, op.SETITEMS})
ITEM_STEPS = frozenset({op.APPEND, op.APPENDS, op.ADDITEMS})


@noun(frozen=False)
class Filling:
    """Keys with their values, items, and states (of BUILD), each in the order in which they were given."""

    keys: list[Value] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    items: list[Value] = field(default_factory=list)
    states: list[Value] = field(default_factory=list)


def filling(node: Made) -> Filling:
    """Return everything that a container or object holds, besides the arguments of its call."""
    found = Filling()
    if node.op == op.DICT:
        found.keys += node.items[::2]
        found.values += node.items[1::2]
    elif node.op == op.LIST:
        found.items += node.items
    for step in node.steps or ():
        if step.op in PAIR_STEPS:
            found.keys += step.payload[::2]
            found.values += step.payload[1::2]
        elif step.op in ITEM_STEPS:
            found.items += step.payload
        elif step.op == op.BUILD:
            found.states += step.payload
    return found


# ---- arguments of the calls that rebuild tensors


Details = tuple[tuple[str, "bool | int | float | str"], ...]


class NotOurs(Exception):
    """A call does not have the form that torch gives it, so its object is shown as it is."""


def plain_dict(value: Value) -> dict[str, Value]:
    """Return the text keys of a dict with their values; empty for anything else."""
    value = bare(value)
    if type(value) is not Made:
        return {}
    found = filling(value)
    return {name: item for key, item in zip(found.keys, found.values, strict=False) if (name := text(key)) is not None}


def layout_name(value: Value) -> str | None:
    """Return ``sparse_csr`` for ``torch.serialization._get_layout("torch.sparse_csr")``, or None for anything else."""
    value = bare(value)
    if type(value) is not Made or value.op not in CALLS:
        return None
    callee, arguments, _ = call(value)
    if full_name(callee) != "torch.serialization._get_layout" or len(arguments) != 1:
        return None
    name = text(arguments[0])
    return None if name is None else name.removeprefix("torch.")


def device_name(value: Value) -> str:
    """Return ``cuda:1`` for that text, and for ``torch.device("cuda", 1)``."""
    value = bare(value)
    if isinstance(value, String):
        return text(value) or ""
    if type(value) is Made and value.op in CALLS:
        callee, arguments, _ = call(value)
        if full_name(callee) == "torch.device" and arguments:
            kind, number = text(arguments[0]) or "", integer(arguments[1]) if len(arguments) > 1 else None
            return kind if number is None or not 0 <= number < 1 << 15 else f"{kind}:{number}"
    raise NotOurs
