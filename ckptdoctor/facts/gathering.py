"""Many small replacements as a few large ones: a list of a thousand NumPy numbers is replaced as one list."""

from __future__ import annotations

from collections.abc import Mapping as Table

from ckptdoctor.checkpoint import KeyPath, Mapping, Node, Sequence, children

FEW = 16  # replacements that are left one by one
_PLAIN = (type(None), bool, int, float, str, bytes)


class _MixedError(Exception):
    """The container holds something besides plain values and replaced ones."""


def gathered(tree: Node, values: Table[KeyPath, object]) -> dict[KeyPath, object]:
    """The same change to ``tree`` as putting each of ``values`` at its path.

    Where there are many, a list, tuple or dict of nothing but plain and replaced values is replaced as a whole; then
    what contains it, as far up as that holds. The root itself is left.
    """
    left = dict(values)
    if len(left) <= FEW:
        return left
    containers = _containers(tree, left)
    for path in sorted(containers, key=len, reverse=True):  # the innermost first
        if path and any((*path, part) in left for part, _ in children(containers[path])):
            _gather(containers[path], path, left)
    return left


def _containers(tree: Node, values: Table[KeyPath, object]) -> dict[KeyPath, Node]:
    """Everything on the way to one of the paths."""
    ways = {path[:end] for path in values for end in range(len(path))}
    found: dict[KeyPath, Node] = {}
    stack: list[tuple[KeyPath, Node]] = [((), tree)]
    while stack:
        path, node = stack.pop()
        found[path] = node
        stack.extend([(below, child) for part, child in children(node) if (below := (*path, part)) in ways])
    return found


def _gather(node: Node, path: KeyPath, left: dict[KeyPath, object]) -> None:
    try:
        whole = _whole(node, path, left)
    except _MixedError:
        return
    for part, _ in children(node):
        left.pop((*path, part), None)
    left[path] = whole


def _whole(node: Node, path: KeyPath, left: Table[KeyPath, object]) -> object:
    if isinstance(node, Sequence) and node.kind in ("list", "tuple"):
        items = [_value(child, (*path, index), left) for index, child in enumerate(node.items)]
        return items if node.kind == "list" else tuple(items)
    if isinstance(node, Mapping) and node.kind == "dict" and node.attributes is None and _has_plain_keys(node):
        return {part: _value(child, (*path, part), left) for part, child in node.entries}
    raise _MixedError


def _has_plain_keys(node: Mapping) -> bool:
    return all(isinstance(part, (str, int)) for part, _ in node.entries)


def _value(child: Node, path: KeyPath, left: Table[KeyPath, object]) -> object:
    if path in left:
        return left[path]
    if isinstance(child, _PLAIN):
        return child
    raise _MixedError
