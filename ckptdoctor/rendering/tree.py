"""Draws the contents as a tree of modules, with counts, shapes, dtypes, bytes and devices; or as a list of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint import (
    Checkpoint,
    KeyPath,
    Mapping,
    Node,
    Opaque,
    Sequence,
    Special,
    Tensor,
    children,
    show_part,
)
from ckptdoctor.noun import field, noun
from ckptdoctor.rendering.contents import place, value
from ckptdoctor.rendering.escape import escape
from ckptdoctor.rendering.numbers import amount, plural, shape, size
from ckptdoctor.rendering.paint import Paint
from ckptdoctor.rendering.summary import elements, stored_bytes
from ckptdoctor.rendering.wrapping import abridged, columns
from ckptdoctor.wording import beyond

_NAME = 60  # characters of a name that are shown
_PLAIN_ROWS = 24  # plain values of one level that are shown before the rest is counted
_DEPTH = 64  # levels that unfold, of nested contents and of modules: deeper ones are no architecture but an attack
# versions of modules, one dict for each: they would be half of the tree and tell nobody anything
_METADATA = Special("._metadata")


@noun(frozen=False)
class Branch:
    """A level of the tree: a dict, an object, or a module whose name is the beginning of keys of a state dict.

    ``joint`` is what joins its name to that of the level above: "." for modules, "/" for everything that nests.
    """

    name: str
    kind: str = ""
    joint: str = "/"
    branches: dict[str, Branch] = field(default_factory=dict)
    leaves: list[tuple[str, Node]] = field(default_factory=list)

    def tensors(self) -> list[Tensor]:
        """Return every tensor at and below this level."""
        found, stack = [], [self]
        while stack:
            branch = stack.pop()
            found += [node for _, node in branch.leaves if isinstance(node, Tensor)]
            stack += branch.branches.values()
        return found


def tree(checkpoint: Checkpoint, root: KeyPath = (), node: Node = None, paint: Paint | None = None) -> str:
    """Return the part of the contents at ``root`` (``node``; None at no root: everything) as an indented tree."""
    node = checkpoint.tree if node is None and not root else node
    rows = list(_rows(grown(checkpoint, root, node), 0)) if _unfolds(node) else [_leaf("", place(root), node)]
    return "\n".join(_coloured(columns(rows, right=frozenset({1, 2, 3}), gap="  "), rows, paint or Paint()))


def keys(tensors: Iterable[Tensor]) -> str:
    """Return every tensor on a line of its own: key path, shape, dtype, bytes, device tag."""
    rows = [(place(tensor.path), *_facts(tensor)) for tensor in tensors]
    return "\n".join(columns(rows, right=frozenset({3}), gap="  "))


def grown(checkpoint: Checkpoint, root: KeyPath, node: Node) -> Branch:
    """Return the tree of levels: state dicts unfold at the dots of their keys, everything else as it is nested."""
    dotted = {each.path for each in checkpoint.state_dicts}
    top = Branch(place(root), _kind(node))
    stack = [(root, node, top)]
    while stack:
        path, parent, branch = stack.pop()
        for part, child in children(parent):
            name, below = show_part(part), (*path, part)
            level, leaf = _module(branch, name) if path in dotted and isinstance(child, Tensor) else (branch, name)
            if part != _METADATA and len(below) <= len(root) + _DEPTH and _unfolds(child):
                nested = level.branches.setdefault(leaf, Branch(leaf, _kind(child)))
                stack.append((below, child, nested))
            else:
                level.leaves.append((leaf, child))
    return top


def _unfolds(node: Node) -> bool:
    return isinstance(node, Mapping | Sequence | Opaque) and any(True for _ in children(node))


def _module(branch: Branch, key: str) -> tuple[Branch, str]:
    *modules, leaf = key.split(".", _DEPTH)
    for depth, name in enumerate(modules):
        branch = branch.branches.setdefault(name, Branch(name, joint="." if depth else "/"))
    return branch, leaf


def _kind(node: Node) -> str:
    if isinstance(node, Opaque):
        return node.class_name
    kind = node.kind if isinstance(node, Mapping | Sequence) else ""
    return "" if kind in ("dict", "collections.OrderedDict") else kind


def _rows(top: Branch, depth: int) -> Iterator[tuple[str, ...]]:
    """Yield rows: name, tensors or shape, elements, bytes, note. Levels with nothing but one level are joined."""
    stack: list[tuple[Branch | tuple[str, Node], int, str]] = [(top, depth, top.name)]
    while stack:
        item, level, name = stack.pop()
        indent = "  " * level
        if not isinstance(item, Branch):
            yield _leaf(indent, *item)
            continue
        while not item.leaves and len(item.branches) == 1 and not item.kind and item is not top:
            (item,) = item.branches.values()
            name = f"{name}{item.joint}{item.name}"
        yield _level(indent, name, item)
        hidden = max(0, sum(not isinstance(node, Tensor) for _, node in item.leaves) - _PLAIN_ROWS)
        shown = item.leaves if not hidden else _abridged_leaves(item.leaves, hidden)
        stack += [(branch, level + 1, branch.name) for branch in reversed(item.branches.values())]
        stack += [(leaf, level + 1, "") for leaf in reversed(shown)]


def _abridged_leaves(leaves: list[tuple[str, Node]], hidden: int) -> list[tuple[str, Node]]:
    plain = [leaf for leaf in leaves if not isinstance(leaf[1], Tensor)]
    kept = {id(leaf) for leaf in plain[: len(plain) - hidden]}
    shown = [leaf for leaf in leaves if isinstance(leaf[1], Tensor) or id(leaf) in kept]
    return [*shown, (beyond(hidden, before="… ", spelt=str), None)]


def _level(indent: str, name: str, branch: Branch) -> tuple[str, ...]:
    tensors = branch.tensors()
    label = indent + abridged(escape(name), _NAME)
    if not tensors:
        return label, "", "", "", escape(branch.kind)
    devices = ", ".join(sorted({escape(tensor.device) for tensor in tensors}))
    remark = "  ".join(filter(None, (abridged(devices, _NAME), escape(branch.kind))))
    return label, plural(len(tensors), "tensor"), amount(elements(tensors)), size(stored_bytes(tensors)), remark


def _leaf(indent: str, name: str, node: Node) -> tuple[str, ...]:
    label = indent + abridged(escape(name), _NAME)
    if isinstance(node, Tensor):
        dims, dtype, nbytes, remark = _facts(node)
        return label, dims, dtype, nbytes, remark
    if name.startswith("… "):
        return label, "", "", "", ""
    return f"{label} {value(node)}", "", "", "", ""


def _facts(tensor: Tensor) -> tuple[str, str, str, str]:
    """Return shape, dtype, bytes, and the note: device tag, then what is unusual."""
    kind = tensor.subclass or ("Parameter" if tensor.is_parameter else "")
    layout = tensor.layout if tensor.layout != "strided" else ""
    remark = "  ".join(escape(text) for text in (tensor.device, layout, kind) if text)
    return shape(tensor.shape), tensor.dtype.name, size(tensor.nbytes), remark


def _coloured(lines: Iterator[str], rows: list[tuple[str, ...]], paint: Paint) -> Iterator[str]:
    for line, row in zip(lines, rows, strict=True):
        yield paint.strong(line) if row[1].endswith(("tensor", "tensors")) else line
