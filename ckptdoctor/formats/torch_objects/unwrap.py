"""Tensors that wrap another one (DTensor) give way to it: the call that makes it stands where theirs stood."""

from __future__ import annotations

from collections.abc import Collection

from ckptdoctor.formats.torch_objects.arguments import plain_dict
from ckptdoctor.formats.torch_objects.graph_edit import GraphEdit
from ckptdoctor.formats.torch_objects.new_nodes import NewNodes
from ckptdoctor.formats.torch_objects.values import CALLS, bare, call, full_name, items
from ckptdoctor.formats.torch_objects.views_in_graph import TYPE_MAKERS, VIEW_MAKERS
from ckptdoctor.pickles.graph import Made, Value


def unwrap(graph: GraphEdit, classes: Collection[str]) -> None:
    """Whoever shares a wrapper of one of these classes goes on sharing what was in it.

    A wrapper without one plain tensor stays.
    """
    if not classes:
        return
    new = NewNodes(graph)
    for node in [each for each in graph.nodes() if isinstance(each, Made) and each.op in CALLS]:
        callee, arguments, _ = call(node)
        if full_name(callee) not in TYPE_MAKERS or len(arguments) != 4 or full_name(arguments[1]) not in classes:
            continue
        inside = _wrapped(arguments[3])
        if len(inside) == 1 and not node.steps:
            (made,) = inside
            made = new.again(made) if graph.references(made) > 1 else made
            node.op, node.items = made.op, made.items
    graph.rebuilt()


def _wrapped(state: Value) -> list[Made]:
    """The plain tensors among the attributes of a wrapper."""
    found = []
    for one in items(state) or [state]:
        for value in plain_dict(one).values():
            node = bare(value)
            if isinstance(node, Made) and node.op in CALLS and full_name(call(node)[0]) in VIEW_MAKERS:
                found.append(node)
    return found
