"""Nested contents under flat keys, as ``flatten_state_dict`` of torch.distributed.checkpoint takes them apart.

Dicts are taken apart, and lists where there are tensors or dicts in them; everything else is one value, and so is an
empty dict, which torch would lose. The keys of dicts become text, as torch makes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from ckptdoctor.checkpoint import KeyPath, Mapping, Node, Part, Tensor, show_path
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.fresh.parts import key_of
from ckptdoctor.noun import noun

Steps = tuple[str | int, ...]

_DEEPEST = 60


@noun
class Value:
    """What is saved under one flat key: a tensor, or any other value. ``steps`` lead to it in the nested contents."""

    key: str
    steps: Steps
    node: Node


@noun(frozen=False)
class Flat:
    """All values of some contents. ``renamed`` are places of keys that were no text."""

    values: list[Value] = field(default_factory=list)
    renamed: list[KeyPath] = field(default_factory=list)


def flat(tree: Node, root: KeyPath = ()) -> Flat:
    """The contents taken apart. Raises RefusedError where two values would get one key, and for what is no dict."""
    if not isinstance(tree, Mapping):
        raise RefusedError(f"{show_path(root)} is no dict: a distributed checkpoint holds values by name.")
    found = Flat()
    seen: set[str] = set()
    for value in _values(tree, (), root, found):
        if value.key in seen:
            raise RefusedError(
                f"Two values would be called “{value.key}” in a distributed checkpoint; rename one first."
            )
        seen.add(value.key)
        found.values.append(value)
    if not found.values:
        raise RefusedError(f"There is nothing in {show_path(root)} that a distributed checkpoint could hold.")
    return found


def _values(node: Node, steps: Steps, path: KeyPath, found: Flat) -> Iterator[Value]:
    if len(steps) > _DEEPEST:
        raise RefusedError(f"{show_path(path[:8])} is nested more than {_DEEPEST} levels deep.")
    if isinstance(node, Mapping) and (node.entries or not steps):
        for part, child in node.entries:
            yield from _values(child, (*steps, _text(part, (*path, part), found)), (*path, part), found)
    elif isinstance(node, Items) and node.kind == "list" and not is_leaf(node):
        for index, child in enumerate(node.items):
            yield from _values(child, (*steps, index), (*path, index), found)
    else:
        yield Value(".".join(map(str, steps)), steps, node)


def _text(part: Part, path: KeyPath, found: Flat) -> str:
    if not isinstance(part, str):
        found.renamed.append(path)
    return str(key_of(part))


def is_leaf(node: Items) -> bool:
    """Whether a list is one value: there is neither a tensor nor a dict in it, however deep in further lists."""
    stack: list[Node] = list(node.items)
    while stack:
        each = stack.pop()
        if isinstance(each, (Tensor, Mapping)):
            return False
        if isinstance(each, Items) and each.kind == "list":
            stack += each.items
    return True
