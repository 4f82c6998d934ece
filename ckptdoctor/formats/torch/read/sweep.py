"""Every node of a pickle graph once, in the order in which the stream makes them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ckptdoctor.pickles.graph import Global, Literal, Made, Node, PersistentId, Popped, Revisit, Tuple, Value


def below(node: Node) -> list[Value]:
    """The values directly inside a node, in stream order, those that were discarded on the way included."""
    if isinstance(node, Made):
        found = list(node.items)
        for step in node.steps or ():
            if not step.late:
                found += step.payload
        return found
    if isinstance(node, Tuple):
        return node.items
    if isinstance(node, PersistentId):
        return [node.id]
    if isinstance(node, Popped):
        later = [step.payload for step in node.steps] if isinstance(node, Revisit) else []
        return [*node.discarded, node.result, *chain.from_iterable(later)]
    if isinstance(node, Global) and node.parts is not None:
        return node.parts
    return []


def nodes(root: Value) -> Iterator[Node]:
    """Every node below ``root`` once, parents before children, in stream order; without recursion."""
    seen: set[int] = set()
    stack: list[Value] = [root]
    while stack:
        node = stack.pop()
        if not isinstance(node, Node) or isinstance(node, Literal) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack.extend(reversed(below(node)))


def storage_references(root: Value) -> Iterator[PersistentId]:
    """Every persistent id below ``root``, in the order in which the stream loads them."""
    for node in nodes(root):
        if type(node) is PersistentId:
            yield node
