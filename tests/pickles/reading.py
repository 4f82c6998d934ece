"""The plain Python value that a graph of plain data stands for, to hold it against what was pickled."""

from __future__ import annotations

from ckptdoctor.pickles import Constant, Global, Made, String, Tuple, plain
from ckptdoctor.pickles import opcodes as op


def value_of(node):
    """The value of a graph made of None, booleans, numbers, strings, tuples, lists, dicts and sets."""
    node = plain(node)
    if isinstance(node, String):
        return bytearray(node.value) if node.op == op.BYTEARRAY8 else node.value
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, Tuple):
        items = [value_of(item) for item in node.items]
        return frozenset(items) if node.op == op.FROZENSET else tuple(items)
    if not isinstance(node, Made):
        return node
    if node.op == op.REDUCE:
        return _called(node)
    filled = [value_of(item) for item in [*node.items, *(item for step in node.steps or () for item in step.payload)]]
    if node.op in (op.EMPTY_DICT, op.DICT):
        return dict(zip(filled[::2], filled[1::2], strict=True))
    return set(filled) if node.op == op.EMPTY_SET else filled


def _called(node):
    """What the few calls return that protocols without an opcode for bytes or sets make of them."""
    function, arguments = node.items
    assert isinstance(function, Global)
    given = value_of(arguments)
    if function.name == "encode":
        return given[0].encode(given[1])
    kinds = {"set": set, "frozenset": frozenset, "bytes": bytes, "bytearray": bytearray}
    return kinds[function.name](*given)


def below(root):
    """Every node of a graph once."""
    seen, waiting = set(), [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not hasattr(node, "memo"):
            continue
        seen.add(id(node))
        yield node
        for name in ("items", "parts", "discarded"):
            waiting += getattr(node, name, None) or ()
        waiting += [getattr(node, "id", None), getattr(node, "result", None)]
        for step in getattr(node, "steps", None) or ():
            waiting += step.payload
