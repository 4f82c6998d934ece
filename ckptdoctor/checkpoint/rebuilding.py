"""A checkpoint around a changed tree: its tensors, storages, state dicts and named globals follow from the tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ckptdoctor.checkpoint import (
    Checkpoint,
    GlobalName,
    Mapping,
    Named,
    Node,
    Opaque,
    Sequence,
    StateDict,
    Storage,
    Tensor,
    at,
)
from ckptdoctor.checkpoint.reshaping import nodes_below, tensors_in

_FLAT = "safetensors"  # the one format whose whole contents are one state dict, whatever its keys look like


def with_tree(checkpoint: Checkpoint, tree: Node) -> Checkpoint:
    """The checkpoint with ``tree`` as its contents. Storages that only lost tensors used go."""
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
    """The storages of tensors and of their parts, as often as they are viewed."""
    for tensor in tensors:
        if tensor.storage is not None:
            yield tensor.storage
        if tensor.parts:
            yield from storages_of(tensor.parts)


def _storages(checkpoint: Checkpoint, tensors: tuple[Tensor, ...]) -> tuple[Storage, ...]:
    """The storages in the order they had; one that no tensor used before either (a storage saved bare) stays."""
    used = {storage.key: storage for storage in storages_of(tensors)}
    before = {storage.key for storage in storages_of(checkpoint.tensors)}
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
    """The names without those that the old tree showed and the new one does not."""
    shown = {each.full for each in checkpoint.globals} & names_in(checkpoint.tree)
    gone = shown - names_in(tree) if shown else shown
    return tuple([each for each in checkpoint.globals if each.full not in gone]) if gone else checkpoint.globals


def names_in(tree: Node) -> set[str]:
    """Every class and function name that the tree shows."""
    found: set[str] = set()
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Tensor):
            found.update((node.rebuild, node.subclass or node.rebuild))
            stack.extend(node.parts)
        elif isinstance(node, Opaque):
            found.add(node.class_name)
        elif isinstance(node, (Mapping, Sequence)):
            found.add(node.kind)
        elif isinstance(node, Named):
            found.add(node.name)
        stack.extend(nodes_below(node))
    return found
