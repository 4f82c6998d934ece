"""Defines the nested contents of a checkpoint as they were saved, addressed by key path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

from ckptdoctor.checkpoint.keypath import ROOT, KeyPath, Part, Special
from ckptdoctor.checkpoint.tensor import Tensor
from ckptdoctor.errors import RefusedError
from ckptdoctor.noun import field, noun


@noun
class Mapping:
    """A dict of any kind. ``kind`` is "dict" or the class's full name (``collections.OrderedDict``).

    ``attributes`` is what was set on the dict object itself, such as a state dict's ``_metadata``.
    ``origin``, of every kind of node: see ``checkpoint.changed_trees.derived``.
    """

    kind: str
    entries: tuple[tuple[Part, Node], ...]
    attributes: Mapping | None = None
    origin: Mapping | None = field(default=None, compare=False, repr=False)


@noun
class Sequence:
    """A list, tuple, set or frozenset (``kind``), or a named kind of one such as ``torch.Size``."""

    kind: str
    items: tuple[Node, ...]
    origin: Sequence | None = field(default=None, compare=False, repr=False)


@noun
class Opaque:
    """An object that is shown but never made: its class, what it would be called with, and the state it would get."""

    class_name: str
    arguments: tuple[Node, ...] = ()
    state: Node = None
    items: tuple[Node, ...] = ()
    entries: tuple[tuple[Part, Node], ...] = ()
    origin: Opaque | None = field(default=None, compare=False, repr=False)


@noun
class Named:
    """A class, function or constant that the file names without calling it, such as ``torch.float32``."""

    name: str


@noun
class Cycle:
    """The object at ``path``, which contains this place."""

    path: KeyPath


@noun
class Elided:
    """Something left out of the tree, and why (a budget was reached)."""

    reason: str


Plain = Union[None, bool, int, float, str, bytes]
Node = Union[Plain, Mapping, Sequence, Opaque, Named, Cycle, Elided, Tensor]


def children(node: Node) -> Iterator[tuple[Part, Node]]:
    """Yield the direct children of a node with the step that leads to each.

    An object's state is directly below it.
    """
    if isinstance(node, Mapping):
        yield from node.entries
        if node.attributes is not None:
            for part, child in node.attributes.entries:
                yield Special(f".{part}"), child
    elif isinstance(node, Sequence):
        yield from enumerate(node.items)
    elif isinstance(node, Opaque):
        for index, child in enumerate(node.arguments):
            yield Special(f"({index})"), child
        if isinstance(node.state, Mapping):
            yield from children(node.state)
        elif node.state is not None:
            yield Special(".state"), node.state
        yield from enumerate(node.items)
        yield from node.entries


def walk(node: Node, path: KeyPath = ROOT) -> Iterator[tuple[KeyPath, Node]]:
    """Yield every node with its key path, parents before children, in file order; without recursion."""
    stack = [(path, node)]
    while stack:
        path, node = stack.pop()
        yield path, node
        below = [((*path, part), child) for part, child in children(node)]
        stack.extend(reversed(below))


def at(node: Node, path: KeyPath) -> Node:
    """Return the node at a key path below ``node``. Raises KeyError when there is none."""
    for part in path:
        node = _child(node, part)
    return node


def mapping_at(tree: Node, path: KeyPath) -> Mapping | None:
    """Return the dict at a key path, or None where there is none: an object's state can hide what was found in it."""
    try:
        found = at(tree, path)
    except KeyError:
        return None
    return found if isinstance(found, Mapping) else None


def _child(node: Node, wanted: Part) -> Node:
    for part, child in children(node):
        if part == wanted and type(part) is type(wanted):
            return child
    raise KeyError(wanted)


# ---- what plain data given to an edit looks like once it has been written and read again


# CPython hashes integers modulo this prime; readers spell out those beyond it
_OWN_HASHES = (1 << 61) - 1


def node_of(value: object) -> Node:
    """Return the node for None, booleans, numbers (complex ones too), text, bytes, and lists, tuples and dicts of such.

    Raises RefusedError for anything else.
    """
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, complex):
        return Opaque("builtins.complex", (value.real, value.imag))
    if isinstance(value, (list, tuple)):
        return Sequence("list" if isinstance(value, list) else "tuple", tuple([node_of(item) for item in value]))
    if isinstance(value, dict):
        return Mapping("dict", tuple([(part_of(key), node_of(item)) for key, item in value.items()]))
    raise RefusedError(f"A {type(value).__name__} is not plain data, so it cannot be put into a checkpoint.")


def part_of(key: object) -> Part:
    """Return the step that a dict key is in a key path.

    Text and integers stay as they are, anything else is taken as it is printed.
    """
    if isinstance(key, str) or (type(key) is int and abs(key) < _OWN_HASHES):
        return key
    return Special(repr(key))
