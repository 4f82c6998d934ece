"""Makes dense tensors of sparse ones, worked out on the nouns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ckptdoctor.checkpoint import Checkpoint, Cycle, Node, Storage, Tensor, show_path
from ckptdoctor.checkpoint.changed_trees import derived, mapped, with_tree
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits import Densify
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.applied.arranging import view_of
from ckptdoctor.edits.elements import Elements, Scattered, View, nbytes, views
from ckptdoctor.edits.fix import Change
from ckptdoctor.edits.sparse import can_be_dense, scattered
from ckptdoctor.edits.tensors import storage_name
from ckptdoctor.errors import RefusedError

_SPARSE = "torch._utils._rebuild_sparse_tensor"
_TYPED, _UNTYPED = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"


def densify(checkpoint: Checkpoint, edit: Densify) -> Checkpoint:
    """Raise RefusedError for paths without a sparse tensor that is plain to read."""
    wanted = set(edit.paths)
    seen: set[object] = set()

    def change(node: Tensor | Cycle) -> Node:
        if not isinstance(node, Tensor) or node.path not in wanted:
            return node
        seen.add(node.path)
        return _dense(node)

    tree = mapped(checkpoint.tree, change)
    for path in edit.paths:
        if path not in seen:
            raise RefusedError(f"There is no tensor at {show_path(path)} to make dense.")
    return with_tree(checkpoint, tree)


def dense_storages(checkpoint: Checkpoint, edit: Densify, original: Callable[[View], Elements]) -> dict[str, Elements]:
    """Return what each storage that the edit makes holds, by key, in the terms to which ``original`` brings views."""
    wanted = set(edit.paths)
    found: dict[str, Elements] = {}
    for tensor in checkpoint.tensors:
        if tensor.path in wanted:
            storage = _dense(tensor).storage
            assert storage is not None
            parts = [(part.dtype, original(view_of(part))) for part in tensor.parts]
            found[storage.key] = scattered(tensor.layout, tensor.shape, parts, show_path(tensor.path))
    return found


def _dense(tensor: Tensor) -> Tensor:
    if not can_be_dense(tensor):
        raise RefusedError(f"{show_path(tensor.path)} is not a sparse tensor that can be made dense.")
    holds = _holds(tensor)
    sizes = {part.storage.key: part.storage.nbytes for part in tensor.parts if part.storage is not None}
    key = storage_name(holds, tensor.dtype, [sizes[view.source] for view in views(holds)])
    (device,) = {part.storage.device for part in tensor.parts[-1:] if part.storage is not None}
    rebuild = (_TYPED if tensor.dtype.storage_class else _UNTYPED) if tensor.rebuild == _SPARSE else tensor.rebuild
    return derived(
        tensor,
        stride=contiguous_stride(tensor.shape),
        storage=Storage(key, nbytes(holds), tensor.dtype, device, None),
        layout="strided",
        parts=(),
        details=(),
        rebuild=rebuild,
    )


def _holds(tensor: Tensor) -> Scattered:
    parts = [(part.dtype, view_of(part)) for part in tensor.parts]
    return scattered(tensor.layout, tensor.shape, parts, show_path(tensor.path))


def _told(checkpoint: Checkpoint, edit: Densify, after: Checkpoint) -> Iterator[Change]:
    yield Change("densify", (), ((len(edit.paths), "tensor"),))


DENSIFY = Act(densify, _told, dense_storages)
