"""Memo entries numbered anew in the order in which they are written, as Python's pickler numbers them."""

from __future__ import annotations

from typing import Union

from ckptdoctor.noun import noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import (
    NO_MEMO,
    Global,
    Literal,
    Made,
    Node,
    PersistentId,
    Pickle,
    Popped,
    Revisit,
    Tuple,
    Value,
)


@noun(frozen=False)
class _Store:
    """Here the node is complete and goes into the memo."""

    node: Node


def renumber_memo(pickle: Pickle) -> None:
    """Give every node that has a memo entry the number that a pickler would: 0, 1, 2 … in the order of the stream.

    After values were taken out or added the numbers have gaps or are out of order, which no pickler leaves behind.
    """
    count = 0
    seen: set[int] = set()
    stack: list[Union[Value, _Store]] = [pickle.root]
    while stack:
        task = stack.pop()
        if isinstance(task, _Store):
            task.node.memo = count
            count += 1
        elif isinstance(task, Node) and not isinstance(task, Literal) and id(task) not in seen:
            seen.add(id(task))
            stack.extend(reversed(_tasks(task)))
        elif isinstance(task, Literal) and task.memo != NO_MEMO and id(task) not in seen:
            seen.add(id(task))
            stack.append(_Store(task))
    pickle.next_memo = count


def _tasks(node: Node) -> list[Union[Value, _Store]]:
    """What is written for a node, in order."""
    if isinstance(node, Revisit):
        return [node.result, *[value for step in node.steps for value in step.payload]]
    if isinstance(node, Popped):
        return [*node.discarded, node.result]
    store: list[Union[Value, _Store]] = [] if node.memo == NO_MEMO else [_Store(node)]
    if isinstance(node, Made):
        return _made(node, store)
    if isinstance(node, Tuple):
        return [*node.items, *store]
    if isinstance(node, PersistentId):
        return [node.id, *store]
    if isinstance(node, Global) and node.parts is not None:
        return [*node.parts, *store]
    return store


def _made(node: Made, store: list[Union[Value, _Store]]) -> list[Union[Value, _Store]]:
    steps = [step for step in node.steps or () if not step.late]
    late = any(step.op == op.PUT for step in steps)
    tasks: list[Union[Value, _Store]] = [*node.items, *([] if late else store)]
    for step in steps:
        tasks += store if step.op == op.PUT else step.payload
    return tasks
