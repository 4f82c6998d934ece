"""Turns arrays of NumPy into tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Sequence, Storage, Tensor, show_path
from ckptdoctor.checkpoint.changed_trees import derived, missing, with_tree
from ckptdoctor.edits import MakeTensors
from ckptdoctor.edits.applied.act import Act, Original
from ckptdoctor.edits.elements import Elements, View
from ckptdoctor.edits.fix import Change
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.numpy_values import Held, held_values

_TYPED, _UNTYPED = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"


def make_tensors(checkpoint: Checkpoint, edit: MakeTensors) -> Checkpoint:
    """Return the checkpoint with a tensor in the place of each array.

    Raises RefusedError for what is not an array of elements that torch has, and where other things than dicts and lists
    are around it.
    """
    changer = _Changer(edit.paths, lambda held, path: _tensor_of(held, path, _key(path)))
    tree = changer.node(checkpoint.tree, ())
    changer.require_all()
    return with_tree(checkpoint, tree)


def held_arrays(checkpoint: Checkpoint, edit: MakeTensors, original: Original) -> dict[str, Elements]:
    """Return the elements of each storage that the edit makes, by key, as they are in the pickle."""
    found: dict[str, Elements] = {}

    def remember(held: Held, path: KeyPath) -> Node:
        width = held.dtype.bits // 8
        found[_key(path)] = View(_key(path), 0, width, (len(held.values) // width,), (1,), held.values)
        return None

    _Changer(edit.paths, remember).node(checkpoint.tree, ())
    return found


def _key(path: KeyPath) -> str:
    """Return what the storage is called here."""
    return f"array at {show_path(path)}"


def _tensor_of(held: Held, path: KeyPath, key: str) -> Tensor:
    """Return the tensor at ``path``, on a storage ``key`` of its own."""
    storage = Storage(key, len(held.values), held.dtype, "cpu", None)
    rebuild = _TYPED if held.dtype.storage_class is not None else _UNTYPED
    return Tensor(path, held.dtype, held.shape, held.stride, storage, rebuild=rebuild)


class _Changer:
    """Replaces each array; only nodes on the way to one are looked into."""

    def __init__(self, paths: tuple[KeyPath, ...], change: Callable[[Held, KeyPath], Node]) -> None:
        self._wanted = set(paths)
        self._ways = {path[:end] for path in paths for end in range(len(path))}
        self._change = change

    def node(self, node: Node, path: KeyPath) -> Node:
        """Return the node with what is to be changed in it."""
        if path in self._wanted:
            held = held_values(node)
            if held is None:
                raise RefusedError(f"{show_path(path)} is not an array that can become a tensor.")
            self._wanted.discard(path)
            return self._change(held, path)
        if path not in self._ways:
            return node
        if isinstance(node, Mapping):
            entries = tuple([(part, self.node(child, (*path, part))) for part, child in node.entries])
            return derived(node, entries=entries)
        if isinstance(node, Sequence):
            return derived(node, items=tuple([self.node(item, (*path, at)) for at, item in enumerate(node.items)]))
        return node

    def require_all(self) -> None:
        """Raise RefusedError for a place that was not reached."""
        for path in self._wanted:
            raise missing(path)


def _told(checkpoint: Checkpoint, edit: MakeTensors, after: Checkpoint) -> Iterator[Change]:
    pairs = tuple([(show_path(path), "tensor") for path in edit.paths])
    yield Change("make-tensors", pairs, ((len(edit.paths), "array"),))


MAKE_TENSORS = Act(make_tensors, _told, held_arrays)
