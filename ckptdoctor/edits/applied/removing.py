"""Takes values out of a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Opaque, Part, Sequence, show_part, show_path
from ckptdoctor.checkpoint.changed_trees import changed_at, derived, moved, with_tree
from ckptdoctor.edits import Drop
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.fix import Change
from ckptdoctor.errors import RefusedError


def without(tree: Node, paths: Iterable[KeyPath]) -> Node:
    """Return the tree without the values at ``paths``; what follows in a list moves up.

    Raises RefusedError for the root, for parts of calls, and for paths that do not exist.
    """
    by_parent: dict[KeyPath, set[Part]] = {}
    for path in paths:
        if not path:
            raise RefusedError("The whole contents cannot be dropped.")
        by_parent.setdefault(path[:-1], set()).add(path[-1])
    # the deepest first, so that indices on the way to the others still hold
    for parent in sorted(by_parent, key=len, reverse=True):
        tree = changed_at(tree, parent, lambda node, parent=parent: _smaller(node, parent, by_parent[parent]))  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
    return tree


def _smaller(node: Node, path: KeyPath, gone: set[Part]) -> Node:
    made, found = _removed(node, path, gone)
    if found < len(gone):
        names = ", ".join(sorted(map(show_part, gone))[:3])
        raise RefusedError(f"{show_path(path)} does not have everything that you asked to drop: {names}.")
    return made


def _removed(node: Node, path: KeyPath, gone: set[Part]) -> tuple[Node, int]:
    """Return the node without these children, and how many of them there were."""
    if isinstance(node, Mapping):
        kept = tuple([entry for entry in node.entries if entry[0] not in gone])
        return derived(node, entries=kept), len(node.entries) - len(kept)
    if isinstance(node, Sequence):
        return _closed_up(node, path, gone)
    if isinstance(node, Opaque) and isinstance(node.state, Mapping):
        state, found = _removed(node.state, path, gone)
        return derived(node, state=state), found
    return node, 0


def _closed_up(node: Sequence, path: KeyPath, gone: set[Part]) -> tuple[Node, int]:
    kept = [(index, item) for index, item in enumerate(node.items) if index not in gone]
    items = [moved(item, (*path, old), (*path, new)) for new, (old, item) in enumerate(kept)]
    return derived(node, items=tuple(items)), len(node.items) - len(items)


def drop(checkpoint: Checkpoint, edit: Drop) -> Checkpoint:
    """Raise RefusedError as ``without`` does."""
    return with_tree(checkpoint, without(checkpoint.tree, edit.paths))


def _told(checkpoint: Checkpoint, edit: Drop, after: Checkpoint) -> Iterator[Change]:
    by_parent: dict[KeyPath, list[str]] = {}
    for path in edit.paths:
        by_parent.setdefault(path[:-1], []).append(str(path[-1]))
    for parent, keys in by_parent.items():
        yield Change("drop", tuple([(key, "") for key in keys]), ((len(keys), "entry"),), parent)


DROP = Act(drop, _told)
