"""Puts another value in the place of one, or of everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint import Checkpoint, Cycle, KeyPath, Node, Opaque, Sequence, Tensor, at, show_path, walk
from ckptdoctor.checkpoint.changed_trees import changed_at, mapped, missing, moved, with_tree
from ckptdoctor.checkpoint.metadata import holds_described
from ckptdoctor.checkpoint.tree import node_of
from ckptdoctor.edits import Edit, Replace, TakeRoot
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.fix import Change
from ckptdoctor.errors import RefusedError
from ckptdoctor.noun import replace
from ckptdoctor.wording import and_more

_SHOWN = 3  # classes inside an object that are named
_PARTS = ("numpy.", "_codecs.")  # parts of numbers and bytes


def _take_root(checkpoint: Checkpoint, edit: TakeRoot) -> Checkpoint:
    try:
        tree = at(checkpoint.tree, edit.path)
    except KeyError as error:
        raise missing(edit.path) from error

    def check(node: Tensor | Cycle) -> Node:
        if isinstance(node, Cycle) and node.path[: len(edit.path)] != edit.path:
            raise RefusedError(
                f"{show_path(edit.path)} refers back to {show_path(node.path)}, so the rest cannot be left out."
            )
        return node

    mapped(tree, check)
    after = with_tree(checkpoint, moved(tree, edit.path, ()))
    return after if holds_described(checkpoint.tree, edit.path) else replace(after, metadata=None)


def replace_values(checkpoint: Checkpoint, edits: Iterable[Edit]) -> Checkpoint:
    """Make replacements at once: what follows from the tree is worked out once, however many there are."""
    tree = checkpoint.tree
    for edit in edits:
        assert isinstance(edit, Replace)
        node = node_of(edit.value)
        tree = changed_at(tree, edit.path, lambda _, node=node: node)  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
    return with_tree(checkpoint, tree)


def _replace(checkpoint: Checkpoint, edit: Replace) -> Checkpoint:
    return replace_values(checkpoint, (edit,))


def _root_told(checkpoint: Checkpoint, edit: TakeRoot, after: Checkpoint) -> Iterator[Change]:
    yield Change("take-root", (), ((len(after.tensors), "tensor"),), edit.path)


def _told(checkpoint: Checkpoint, edit: Replace, after: Checkpoint) -> Iterator[Change]:
    yield Change("replace", (_exchange(checkpoint, edit),), ((1, "object"),), edit.path)


def _exchange(checkpoint: Checkpoint, edit: Replace) -> tuple[str, str]:
    """Return what is there, and what will be; of a list with the same texts or numbers, that they are reordered."""
    node, value = at(checkpoint.tree, edit.path), edit.value
    if isinstance(node, Sequence) and isinstance(value, list):
        items = [item for item in node.items if isinstance(item, (int, str))]
        if len(items) == len(node.items) and Counter(items) == Counter(map(_plain, value)):
            return f"{len(items):,} {'entry' if len(items) == 1 else 'entries'}", "the same in another order"
    return _classes(checkpoint, edit.path), type(value).__name__


def _plain(value: object) -> object:
    return value if isinstance(value, (int, str)) else None


def _classes(checkpoint: Checkpoint, path: KeyPath) -> str:
    """Return what is at a path, and the classes of objects inside it, which are lost with it."""
    own, inside = _kind(checkpoint, path), dict[str, None]()
    for _, node in walk(at(checkpoint.tree, path)):
        if isinstance(node, Opaque) and not node.class_name.startswith(_PARTS):
            inside.setdefault(node.class_name)
    inside.pop(own, None)
    names = list(inside)
    return f"{own} with {and_more(names, _SHOWN, before=', and ', spelt=str)}" if names else own


def _kind(checkpoint: Checkpoint, path: KeyPath) -> str:
    """Return in a word what is at a path: its class or kind."""
    node: Node = at(checkpoint.tree, path)
    for attribute in ("class_name", "kind", "name"):
        found = getattr(node, attribute, None)
        if isinstance(found, str):
            return found
    return type(node).__name__


TAKE_ROOT = Act(_take_root, _root_told)
REPLACE = Act(_replace, _told)
