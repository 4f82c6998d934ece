"""Nested contents with only the levels that lead to some of their tensors."""

from __future__ import annotations

from collections.abc import Set

from ckptdoctor.checkpoint import KeyPath, Mapping, Node, Opaque, Part, Sequence, Tensor, children

_Below = list[tuple[Part, Node]]  # what is left below a level, last first


def pruned(node: Node, paths: Set[KeyPath]) -> Node:
    """``node`` with only the tensors at the ``paths``, and the levels on the way; where there are none, an empty dict.

    Every step stays as it was, so that a list in which something is left out becomes a mapping of its indices. However
    deep it is, there is no recursion.
    """
    nodes, above = _levels(node, paths)
    below: list[_Below] = [[] for _ in nodes]
    for number in range(len(nodes) - 1, 0, -1):  # what is below a level comes behind it
        if below[number] or isinstance(nodes[number], Tensor):
            parent, part = above[number]
            below[parent].append((part, _with(nodes[number], below[number])))
    kept = below[0] or (isinstance(node, Tensor) and node.path in paths)
    return _with(node, below[0]) if kept else Mapping("dict", ())


def _levels(node: Node, paths: Set[KeyPath]) -> tuple[list[Node], list[tuple[int, Part]]]:
    """Levels and wanted tensors, parents before children; and the number of the parent, and the step, of each."""
    nodes: list[Node] = [node]
    above: list[tuple[int, Part]] = [(0, "")]
    for number, level in enumerate(nodes):  # which grows meanwhile
        for part, child in children(level):
            if child.path in paths if isinstance(child, Tensor) else isinstance(child, Mapping | Sequence | Opaque):
                nodes.append(child)
                above.append((number, part))
    return nodes, above


def _with(node: Node, below: _Below) -> Node:
    """The level with other contents, each under the step that led to it before; a tensor as it is."""
    entries = tuple(reversed(below))
    if isinstance(node, Mapping):
        return Mapping(node.kind, entries)
    if isinstance(node, Sequence):
        whole = len(entries) == len(node.items)
        return Sequence(node.kind, tuple([child for _, child in entries])) if whole else Mapping(node.kind, entries)
    return Opaque(node.class_name, state=Mapping("dict", entries)) if isinstance(node, Opaque) else node
