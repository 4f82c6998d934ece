"""Makes changed copies of trees of contents, and checkpoints around them; what is not changed is shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter, is_
from typing import TypeVar

from ckptdoctor.checkpoint import (
    Checkpoint,
    Cycle,
    GlobalName,
    KeyPath,
    Mapping,
    Named,
    Node,
    Opaque,
    Part,
    Sequence,
    Special,
    StateDict,
    Storage,
    Tensor,
    at,
    show_path,
)
from ckptdoctor.errors import RefusedError
from ckptdoctor.noun import maker, noun, replace

_CONTAINERS = (Mapping, Sequence, Opaque)

_Changeable = TypeVar("_Changeable", Mapping, Sequence, Opaque, Tensor)


def derived(node: _Changeable, **changes: object) -> _Changeable:
    """Return the node with other fields, which remembers in ``origin`` which node of the file it was made of.

    What has no origin and is none of the file's nodes is new. So a writer finds what has only moved, whatever path it
    has now; only edits make nodes that have an origin.
    """
    origin = node if node.origin is None else node.origin
    return replace(node, origin=origin, **changes)  # type: ignore[arg-type]  # mypy knows no more of **changes


def source_of(node: Node) -> Node:
    """Return the node of the file that this one was made of, or the node itself."""
    origin = getattr(node, "origin", None)
    return node if origin is None else origin


def nodes_below(node: Node) -> list[Node]:
    """Return the nodes directly inside a container, its attributes or state being one node, or [] for anything else."""
    if isinstance(node, Mapping):
        values = [value for _, value in node.entries]
        return values if node.attributes is None else [*values, node.attributes]
    if isinstance(node, Sequence):
        return list(node.items)
    if isinstance(node, Opaque):
        return [*node.arguments, node.state, *node.items, *(value for _, value in node.entries)]
    return []


def with_nodes(node: Node, below: list[Node]) -> Node:
    """Return the container with other nodes in it, in the order of ``nodes_below``."""
    if isinstance(node, Mapping):
        entries = tuple([(part, value) for (part, _), value in zip(node.entries, below, strict=False)])
        attributes = below[len(entries)] if len(below) > len(entries) else None
        return derived(node, entries=entries, attributes=attributes if isinstance(attributes, Mapping) else None)
    if isinstance(node, Sequence):
        return derived(node, items=tuple(below))
    if isinstance(node, Opaque):
        first, second = len(node.arguments), len(node.arguments) + 1 + len(node.items)
        entries = tuple([(part, value) for (part, _), value in zip(node.entries, below[second:], strict=True)])
        state, items = below[first], tuple(below[first + 1 : second])
        return derived(node, arguments=tuple(below[:first]), state=state, items=items, entries=entries)
    return node


@noun(frozen=False)
class _Frame:
    """A container on its way to its changed copy: what is in it, and what has been changed so far."""

    node: Node
    below: list[Node]
    done: list[Node]
    changed: bool = False


def mapped(tree: Node, change: Callable[[Tensor | Cycle], Node]) -> Node:
    """Return the tree with every tensor and every cycle changed by ``change``.

    Not recursive: files decide how deep it is.
    """
    if isinstance(tree, (Tensor, Cycle)):
        return change(tree)
    if not isinstance(tree, _CONTAINERS):
        return tree
    stack = [_Frame(tree, nodes_below(tree), [])]
    while True:
        frame = stack[-1]
        _advance(frame, change, stack)
        if stack[-1] is not frame:
            continue
        stack.pop()
        made = with_nodes(frame.node, frame.done) if frame.changed else frame.node
        if not stack:
            return made
        stack[-1].changed |= frame.changed
        stack[-1].done.append(made)


def _advance(frame: _Frame, change: Callable[[Tensor | Cycle], Node], stack: list[_Frame]) -> None:
    """Change what follows in this container, up to the next container inside it, which goes on the stack."""
    while len(frame.done) < len(frame.below):
        node = frame.below[len(frame.done)]
        if isinstance(node, (Tensor, Cycle)):
            new = change(node)
            frame.changed |= new is not node
            frame.done.append(new)
        elif isinstance(node, _CONTAINERS):
            stack.append(_Frame(node, nodes_below(node), []))
            return
        else:
            frame.done.append(node)


def tensors_in(tree: Node) -> Iterator[Tensor]:
    """Yield every tensor of the tree, in file order; not the inner ones of sparse or quantized tensors."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Tensor):
            yield node
        elif isinstance(node, _CONTAINERS):
            below = nodes_below(node)
            if any(isinstance(each, _CONTAINERS) for each in below if type(each) is not Tensor):
                stack.extend(reversed(below))
            else:  # most tensors stand side by side in one dict
                yield from [each for each in below if isinstance(each, Tensor)]


# all fields of a tensor but the first, its path, and the last, its origin
_but_place = attrgetter(*Tensor.__match_args__[1:-1])
_tensor = maker(Tensor)


def moved(tree: Node, old: KeyPath, new: KeyPath) -> Node:
    """Return the subtree that was at ``old``, with the paths that it has at ``new``."""
    if old == new:
        return tree
    if isinstance(tree, Tensor):
        return move_tensor(tree, old, new)

    def change(node: Tensor | Cycle) -> Node:
        if isinstance(node, Tensor):
            return move_tensor(node, old, new)
        return Cycle((*new, *node.path[len(old) :])) if node.path[: len(old)] == old else node

    return mapped(tree, change)


def move_tensor(tensor: Tensor, old: KeyPath, new: KeyPath) -> Tensor:
    """Return the tensor and its parts with ``new`` instead of ``old`` at the beginning of their paths."""
    if tensor.path == old:
        path = new
    elif tensor.path[: len(old)] == old:
        path = (*new, *tensor.path[len(old) :])
    else:
        return tensor
    if tensor.parts:
        return derived(tensor, path=path, parts=tuple([move_tensor(part, old, new) for part in tensor.parts]))
    origin = tensor if tensor.origin is None else tensor.origin
    return _tensor(path, *_but_place(tensor), origin)  # type: ignore[call-arg]  # mypy cannot count them


def changed_at(tree: Node, path: KeyPath, change: Callable[[Node], Node]) -> Node:
    """Return the tree with the node at ``path`` changed. Raises RefusedError where there is none."""
    way: list[tuple[Node, int]] = []
    node = tree
    for part in path:
        for slot in _slots(node, part, path):
            way.append((node, slot))
            node = nodes_below(node)[slot]
    node = change(node)
    for parent, slot in reversed(way):
        below = nodes_below(parent)
        below[slot] = node
        node = with_nodes(parent, below)
    return node


def _slots(node: Node, part: Part, path: KeyPath) -> list[int]:
    """Return the places in ``nodes_below`` that lead from a node to its child ``part``.

    There are two through attributes or a state.
    """
    if isinstance(node, Mapping):
        slot = _entry(node.entries, part)
        if slot is not None:
            return [slot]
        if node.attributes is not None and isinstance(part, Special):
            inner = _entry(node.attributes.entries, part.text.removeprefix("."))
            if inner is not None:
                return [len(node.entries), inner]
    elif isinstance(node, Sequence):
        if isinstance(part, int) and 0 <= part < len(node.items):
            return [part]
    elif isinstance(node, Opaque):
        slots = _object_slots(node, part, path)
        if slots:
            return slots
    raise missing(path)


def _object_slots(node: Opaque, part: Part, path: KeyPath) -> list[int]:
    state = len(node.arguments)
    for index in range(state):
        if part == Special(f"({index})"):
            return [index]
    if isinstance(node.state, Mapping):
        slot = _entry(node.state.entries, part)
        if slot is not None:
            return [state, slot]
    elif part == Special(".state"):
        return [state]
    if isinstance(part, int) and 0 <= part < len(node.items):
        return [state + 1 + part]
    slot = _entry(node.entries, part)
    return [] if slot is None else [state + 1 + len(node.items) + slot]


def _entry(entries: tuple[tuple[Part, Node], ...], part: Part) -> int | None:
    for index, (own, _) in enumerate(entries):
        if own == part and type(own) is type(part):
            return index
    return None


def missing(path: KeyPath) -> RefusedError:
    """Return the refusal of an edit of something that is not there."""
    return RefusedError(f"There is nothing at {show_path(path)} to change.")


# ---- a checkpoint around a changed tree: its tensors, storages, state dicts and named globals follow from the tree


_FLAT = "safetensors"  # the one format whose whole contents are one state dict, whatever its keys look like


def with_tree(checkpoint: Checkpoint, tree: Node) -> Checkpoint:
    """Return the checkpoint with ``tree`` as its contents. Storages that only lost tensors used go."""
    if tree is checkpoint.tree:
        return checkpoint
    tensors = tuple(tensors_in(tree))
    return replace(
        checkpoint,
        tree=tree,
        tensors=tensors,
        storages=_storages(checkpoint, tensors),
        state_dicts=_state_dicts(checkpoint, tree),
        globals=_globals(checkpoint, tree),
    )


def storages_of(tensors: Iterable[Tensor]) -> Iterator[Storage]:
    """Yield the storages of tensors and of their parts, as often as they are viewed."""
    for tensor in tensors:
        if tensor.storage is not None:
            yield tensor.storage
        if tensor.parts:
            yield from storages_of(tensor.parts)


def _storages(checkpoint: Checkpoint, tensors: tuple[Tensor, ...]) -> tuple[Storage, ...]:
    """Return the storages in the order they had; one that no tensor used before either (a storage saved bare) stays."""
    viewed, viewed_before = list(storages_of(tensors)), list(storages_of(checkpoint.tensors))
    if len(viewed) == len(viewed_before) and all(map(is_, viewed, viewed_before)):
        return checkpoint.storages
    used = {storage.key: storage for storage in viewed}
    before = {storage.key for storage in viewed_before}
    kept = [used.pop(each.key, each) for each in checkpoint.storages if each.key in used or each.key not in before]
    return (*kept, *used.values())


def _state_dicts(checkpoint: Checkpoint, tree: Node) -> tuple[StateDict, ...]:
    if checkpoint.format != _FLAT:
        from ckptdoctor.checkpoint.state_dicts import find_state_dicts

        return find_state_dicts(tree)
    return tuple([_refreshed(each, tree) for each in checkpoint.state_dicts])


def _refreshed(state_dict: StateDict, tree: Node) -> StateDict:
    node = at(tree, state_dict.path)
    entries = node.entries if isinstance(node, Mapping) else ()
    return replace(state_dict, tensors=tuple([value for _, value in entries if isinstance(value, Tensor)]))


def _globals(checkpoint: Checkpoint, tree: Node) -> tuple[GlobalName, ...]:
    """Return the names without those that the old tree showed and the new one does not."""
    shown = {each.shown for each in checkpoint.globals} & names_in(checkpoint.tree)
    gone = shown - names_in(tree) if shown else shown
    return tuple([each for each in checkpoint.globals if each.shown not in gone]) if gone else checkpoint.globals


# what the tree calls by short names
_SETS = {"set": "builtins.set", "frozenset": "builtins.frozenset"}


def names_in(tree: Node) -> set[str]:
    """Return every class and function name that the tree shows."""
    found: set[str] = set()
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Tensor):
            found.add(node.rebuild)
            if node.subclass:
                found.add(node.subclass)
            stack.extend(node.parts)
            continue
        if isinstance(node, Opaque):
            found.add(node.class_name)
        elif isinstance(node, (Mapping, Sequence)):
            found.add(_SETS.get(node.kind, node.kind))
        elif isinstance(node, Named):
            found.add(node.name)
        below = nodes_below(node)
        plain = [each for each in below if type(each) is Tensor and not each.parts]
        found.update({each.rebuild for each in plain}, {each.subclass for each in plain if each.subclass})
        stack.extend(below if not plain else [each for each in below if type(each) is not Tensor or each.parts])
    return found
