"""Every node of a pickle graph once, in the order in which the stream makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Union

from ckptdoctor.pickles.folded import FoldedTensor
from ckptdoctor.pickles.graph import Global, Literal, Made, Node, PersistentId, Popped, Revisit, Text, Tuple, Value


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


def below_folded(node: Node) -> list[Value]:
    """The same, but a folded tensor stays folded: inside it are the nodes that it shares with others."""
    if type(node) is not Made:
        return below(node)
    folded = folded_in(node)
    if folded is None:
        return below(node)
    found = [folded.callee, *folded.fetched]
    for step in node.steps or ():
        if not step.late:
            found += step.payload
    return found


def folded_in(node: Made) -> FoldedTensor | None:
    """The tensor that a node is as long as nobody has opened it; None for one that fetches unusual things."""
    folded = node.folded
    if folded is None or folded.opened or type(folded.place) not in (Text, type(None)):
        return None
    usual = type(folded.callee) is type(folded.kind) is type(folded.hooks) is Global and type(folded.tag) is Text
    return folded if usual else None


def nodes(root: Value, inside: Callable[[Node], list[Value]] = below) -> Iterator[Node]:
    """Every node below ``root`` once, parents before children, in stream order; without recursion."""
    seen: set[int] = set()
    stack: list[Value] = [root]
    while stack:
        node = stack.pop()
        if not isinstance(node, Node) or isinstance(node, Literal) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack.extend(reversed(inside(node)))


def storage_references(root: Value) -> Iterator[PersistentId]:
    """Every persistent id below ``root``, in the order in which the stream loads them."""
    for node in nodes(root):
        if type(node) is PersistentId:
            yield node


def folded_references(root: Value) -> Iterator[Union[PersistentId, FoldedTensor]]:
    """The same, where a folded tensor stands for the reference in it and stays folded."""
    for node in nodes(root, below_folded):
        if type(node) is PersistentId:
            yield node
        elif type(node) is Made:
            folded = folded_in(node)
            if folded is not None:
                yield folded
