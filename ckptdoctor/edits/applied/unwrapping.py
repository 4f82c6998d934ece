"""Puts what a tensor wraps in the place of a tensor that only wraps it."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Cycle, Node, Tensor, show_path
from ckptdoctor.checkpoint.changed_trees import derived, mapped, with_tree
from ckptdoctor.edits import Unwrap
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.fix import Change
from ckptdoctor.errors import RefusedError
from ckptdoctor.noun import replace


def unwrap(checkpoint: Checkpoint, edit: Unwrap) -> Checkpoint:
    """Return the checkpoint without the wrappers.

    Raises RefusedError for one that wraps more than one tensor, or none.
    """
    made = with_tree(checkpoint, unwrapped(checkpoint.tree, edit.classes))
    gone = frozenset(edit.storages)
    return replace(made, storages=tuple([each for each in made.storages if each.key not in gone]))


def unwrapped(tree: Node, classes: tuple[str, ...]) -> Node:
    """Return the tree with what they wrap in place of the tensors of these classes."""

    def change(node: Tensor | Cycle) -> Node:
        if not isinstance(node, Tensor) or node.subclass not in classes:
            return node
        if len(node.parts) != 1:
            raise RefusedError(f"{show_path(node.path)} wraps {len(node.parts)} tensors, so none can take its place.")
        return derived(node.parts[0], path=node.path)

    return mapped(tree, change)


def _told(checkpoint: Checkpoint, edit: Unwrap, after: Checkpoint) -> Iterator[Change]:
    yield Change("unwrap", (), ((sum(each.subclass in edit.classes for each in checkpoint.tensors), "tensor"),))


UNWRAP = Act(unwrap, _told)
