"""The keys of a state dict as a tree of modules, in which parts that hold the same parameters have the same form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from random import Random

from ckptdoctor.noun import noun

Tokens = tuple[str, ...]
Kind = tuple[str, tuple[int, ...]]

_DEPTH = 32  # tokens of a key that make a tree: longer ones stand outside
_BITS = 96


@noun(frozen=False, eq=False)
class Node:
    """A module, or a parameter where ``key`` is set. ``form`` is the same where the same kinds of keys are below."""

    tokens: Tokens
    parent: Node | None
    order: int
    key: str | None = None
    children: dict[tuple[str, bool], Node] = field(default_factory=dict)
    size: int = 0
    form: int = 0

    def parts(self) -> Iterator[Node]:
        """The modules and parameters right below."""
        for child in self.children.values():
            yield child.branch()

    def branch(self) -> Node:
        """This, or what is below it where that is alone in it: ``stages.0.blocks`` for ``stages.0``."""
        node = self
        while len(node.children) == 1:
            node = next(iter(node.children.values()))
        return node

    def top(self) -> Node:
        """What this one is alone in, the other way round."""
        node = self
        while node.parent is not None and node.parent.parent is not None and len(node.parent.children) == 1:
            node = node.parent
        return node

    def outside(self) -> Node | None:
        """The nearest module around this one with something else in it."""
        return self.top().parent


class Forms:
    """Numbers for kinds of keys: the sum of those below a module is its form, whatever their order and nesting.

    Two modules that differ have the same sum only by a chance that nobody can arrange; names never rest on it alone.
    """

    def __init__(self) -> None:
        self._known: dict[Kind, int] = {}
        self._random = Random(0)  # no secret: the same file always gives the same answer

    def number(self, kind: Kind) -> int:
        """The number of a kind."""
        found = self._known.get(kind)
        if found is None:
            found = self._known[kind] = self._random.getrandbits(_BITS)
        return found


def tree(keys: Iterable[str], kind: Callable[[str], Kind], forms: Forms) -> Node:
    """The tree of these keys."""
    root = Node((), None, 0)
    for order, key in enumerate(keys):
        tokens = tuple(key.split("."))
        if len(tokens) <= _DEPTH:
            _grow(root, tokens, key, order, forms.number(kind(key)))
    return root


def _grow(root: Node, tokens: Tokens, key: str, order: int, number: int) -> None:
    node = root
    node.size += 1
    node.form += number
    for depth, token in enumerate(tokens, start=1):
        last = depth == len(tokens)
        child = node.children.get((token, last))
        if child is None:
            child = node.children[token, last] = Node(tokens[:depth], node, order, key if last else None)
        node = child
        node.size += 1
        node.form += number
