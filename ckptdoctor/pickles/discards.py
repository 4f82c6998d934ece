"""Whether a pickle makes calls whose results do not reach what it returns."""

from __future__ import annotations

from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Global, Made, Node, PersistentId, Popped, Tuple, Value


def discards_calls(root: Value, calls: int) -> bool:
    """Whether fewer than ``calls`` calls are found in the graph under ``root``, discarded values left out."""
    seen: set[Node] = set()  # nodes are compared by identity
    waiting: list[Value] = [root]
    found = 0
    while waiting:
        node = waiting.pop()
        if not isinstance(node, (Tuple, Made, PersistentId, Popped, Global)) or node in seen:
            continue
        seen.add(node)
        if isinstance(node, Made):
            found += node.op in op.CALLS
            for step in node.steps or ():
                waiting += step.payload
        waiting += parts(node)
    return found < calls


def parts(node: Tuple | Made | PersistentId | Popped | Global) -> list[Value]:
    """The values that a node was made of."""
    if isinstance(node, (Tuple, Made)):
        return node.items
    if isinstance(node, PersistentId):
        return [node.id]
    if isinstance(node, Popped):
        return [node.result]
    return node.parts or []
