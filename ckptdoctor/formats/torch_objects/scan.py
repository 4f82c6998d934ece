"""One walk over a whole graph that tells how often each node is used, and which contain themselves."""

from __future__ import annotations

from dataclasses import field
from typing import Union

from ckptdoctor.formats.torch_objects.sweep import below
from ckptdoctor.noun import noun
from ckptdoctor.pickles.graph import Extension, Literal, Node, Text, Value, Verbatim

# nodes that hold no others
_LEAVES = frozenset({Text, Verbatim, Literal, Extension})


@noun(frozen=False)
class Scan:
    """``nodes`` are all nodes that hold others, parents before children, in stream order.

    ``counts`` says by id from how many places the graph leads to a node, not counting places inside the node itself;
    ``looping`` has the ids of those that such places lead back to; ``kept`` keeps nodes alive that were counted and may
    have gone since, so that no other gets their id.
    """

    nodes: list[Node] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    looping: set[int] = field(default_factory=set)
    kept: list[Node] = field(default_factory=list)


def scan(root: Value) -> Scan:
    """Walk the graph below ``root`` once, without recursion."""
    found = Scan()
    counts, nodes = found.counts, found.nodes
    inside: set[int] = set()
    # integers on the stack are ids of nodes that are left there; those of the file never get onto it
    stack: list[Union[Node, int]] = [root] if isinstance(root, Node) else []
    while stack:
        node = stack.pop()
        if isinstance(node, int):
            inside.discard(node)
            continue
        key = id(node)
        if key in inside:
            found.looping.add(key)
        elif key in counts:
            counts[key] += 1
        else:
            counts[key] = 1
            children = [child for child in below(node) if isinstance(child, Node)]
            nodes.append(node)
            for child in children:
                if type(child) in _LEAVES:
                    counts[id(child)] = counts.get(id(child), 0) + 1
            deeper = [child for child in children if type(child) not in _LEAVES]
            if deeper:
                inside.add(key)
                stack.append(key)
                deeper.reverse()
                stack += deeper
    return found
