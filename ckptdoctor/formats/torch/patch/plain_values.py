"""Plain Python data as values of a pickle graph, and new nodes of a tree as plain Python data."""

from __future__ import annotations

from ast import literal_eval

from ckptdoctor.checkpoint import Mapping, Node, Opaque, Part, Sequence, Special
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch.patch.texts import new_text
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Global, Made, Pickle, Step, Text, Tuple, Value


def from_plain(pickle: Pickle, value: object) -> Value:
    """None, booleans, numbers, text and bytes, and lists, tuples and dicts of such, as the graph holds them.

    Raises RefusedError for anything else.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return new_text(pickle, value)
    if isinstance(value, bytes):
        return _bytes(pickle, value)
    if isinstance(value, complex):
        module = "__builtin__" if pickle.protocol < 3 else "builtins"
        return Made(op.REDUCE, [Global(op.GLOBAL, module, "complex"), Tuple(op.TUPLE, [value.real, value.imag])])
    if isinstance(value, tuple):
        return Tuple(op.TUPLE, [from_plain(pickle, item) for item in value])
    made = Made(op.EMPTY_LIST if isinstance(value, list) else op.EMPTY_DICT)
    if isinstance(value, list):
        payload = [from_plain(pickle, item) for item in value]
        made.steps = [Step(op.APPENDS, payload)] if payload else None
        return made
    if isinstance(value, dict):
        payload = [from_plain(pickle, each) for pair in value.items() for each in pair]
        made.steps = [Step(op.SETITEMS, payload)] if payload else None
        return made
    raise RefusedError(f"A {type(value).__name__} is not plain data, and cannot be put into a checkpoint.")


def _bytes(pickle: Pickle, value: bytes) -> Value:
    """Bytes as Python's pickler writes them: before protocol 3, as text that is to be encoded."""
    if pickle.protocol >= 3:
        return Text(op.SHORT_BINBYTES if len(value) < 256 else op.BINBYTES, value)
    given: list[Value] = [new_text(pickle, value.decode("latin1")), new_text(pickle, "latin1")]
    return Made(op.REDUCE, [Global(op.GLOBAL, "_codecs", "encode"), Tuple(op.TUPLE, given)])


def plain_data(node: Node) -> object:
    """The Python value that a new node stands for: the reverse of ``checkpoint.plain_nodes.node_of``."""
    if isinstance(node, Sequence):
        items = [plain_data(item) for item in node.items]
        return items if node.kind == "list" else tuple(items)
    if isinstance(node, Mapping):
        return {plain_key(part): plain_data(value) for part, value in node.entries}
    if isinstance(node, Opaque) and node.class_name == "builtins.complex":
        real, imaginary = node.arguments
        assert isinstance(real, float)
        assert isinstance(imaginary, float)
        return complex(real, imaginary)
    return node


def plain_key(part: Part) -> object:
    """The key that a step of a path stands for."""
    return literal_eval(part.text) if isinstance(part, Special) else part
