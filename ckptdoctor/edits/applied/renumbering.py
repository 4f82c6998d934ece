"""Gives the entries of a dict other numbers, and another order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Part, show_path
from ckptdoctor.checkpoint.changed_trees import changed_at, derived, missing, moved, with_tree
from ckptdoctor.edits import Renumber, Reorder
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.fix import Change
from ckptdoctor.errors import RefusedError


def renumber(checkpoint: Checkpoint, edit: Renumber) -> Checkpoint:
    """Raise RefusedError for numbers that are not there, and where two entries would get one."""
    numbers = dict(edit.pairs)

    def change(node: Mapping) -> Mapping:
        keys = [part for part, _ in node.entries if type(part) is int]
        made = [numbers.get(part, part) if type(part) is int else part for part, _ in node.entries]
        if not numbers.keys() <= set(keys) or len(set(made)) != len(made):
            raise RefusedError(f"The entries of {show_path(edit.path)} cannot be renumbered: two would become one.")
        entries = [
            (new, value if new == old else moved(value, (*edit.path, old), (*edit.path, new)))
            for (old, value), new in zip(node.entries, made, strict=True)
        ]
        return derived(node, entries=tuple(entries))

    return _changed(checkpoint, edit.path, change)


def reorder(checkpoint: Checkpoint, edit: Reorder) -> Checkpoint:
    """Raise RefusedError unless the keys are those of the dict, each once."""

    def change(node: Mapping) -> Mapping:
        entries: dict[Part, Node] = dict(node.entries)
        if len(edit.keys) != len(node.entries) or entries.keys() != set(edit.keys):
            raise RefusedError(f"{show_path(edit.path)} does not have the keys that are being reordered.")
        return derived(node, entries=tuple([(key, entries[key]) for key in edit.keys]))

    return _changed(checkpoint, edit.path, change)


def _changed(checkpoint: Checkpoint, path: KeyPath, change: Callable[[Mapping], Mapping]) -> Checkpoint:
    def require(node: Node) -> Node:
        if not isinstance(node, Mapping):
            raise missing(path)
        return change(node)

    return with_tree(checkpoint, changed_at(checkpoint.tree, path, require))


def _numbers_told(checkpoint: Checkpoint, edit: Renumber, after: Checkpoint) -> Iterator[Change]:
    pairs = tuple([(str(old), str(new)) for old, new in edit.pairs])
    yield Change("renumber", pairs, ((len(pairs), "state"),), edit.path)


def _order_told(checkpoint: Checkpoint, edit: Reorder, after: Checkpoint) -> Iterator[Change]:
    yield Change("reorder", (), ((len(edit.keys), "key"),), edit.path)


RENUMBER = Act(renumber, _numbers_told)
REORDER = Act(reorder, _order_told)
