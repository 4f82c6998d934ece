"""Casts tensors to another dtype, worked out on the nouns: some keep their storage, and some get one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from ckptdoctor.checkpoint import Checkpoint, Cycle, KeyPath, Node, Storage, Tensor, show_part
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.changed_trees import derived, mapped, missing, with_tree
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits import Cast
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.applied.arranging import view_of
from ckptdoctor.edits.applied.compacting import views
from ckptdoctor.edits.casts import converted, require_castable
from ckptdoctor.edits.elements import Elements, View, nbytes
from ckptdoctor.edits.fix import Change
from ckptdoctor.edits.tensors import storage_name
from ckptdoctor.noun import noun


@noun
class _Made:
    """A storage that the edit makes, and which bytes of the old ones it is made of."""

    view: View
    storage: Storage


@noun
class _Plan:
    """The tensors that are cast, and the storages that these get: by the key of the old one, or by the tensor's path.

    A storage is cast as a whole where all of its tensors are cast, from one dtype: they go on sharing it as they did.
    """

    whole: Mapping[str, _Made]
    single: Mapping[KeyPath, _Made]
    tensors: Mapping[KeyPath, Tensor]


def cast(checkpoint: Checkpoint, edit: Cast) -> Checkpoint:
    """Return the checkpoint with these tensors cast. Raises RefusedError for those that cannot be."""
    plan = _plan(checkpoint, edit)

    def change(node: Tensor | Cycle) -> Node:
        if not isinstance(node, Tensor) or node.path not in plan.tensors or node.storage is None:
            return node
        whole = plan.whole.get(node.storage.key)
        if whole is not None:
            return derived(node, dtype=BY_NAME[edit.dtype], storage=whole.storage)
        storage, stride = plan.single[node.path].storage, contiguous_stride(node.shape)
        return derived(node, dtype=BY_NAME[edit.dtype], storage=storage, stride=stride, offset=0)

    return with_tree(checkpoint, mapped(checkpoint.tree, change)) if plan.tensors else checkpoint


def cast_storages(checkpoint: Checkpoint, edit: Cast, original: Callable[[View], Elements]) -> dict[str, Elements]:
    """Return what each storage that the edit makes holds, by key, in the terms to which ``original`` brings views."""
    plan = _plan(checkpoint, edit)
    found: dict[str, Elements] = {}
    done: set[str] = set()
    for path, tensor in plan.tensors.items():
        key = tensor.storage.key if tensor.storage is not None else ""
        if key in done:
            continue
        whole = plan.whole.get(key)
        done.update((key,) if whole is not None else ())
        made = plan.single[path] if whole is None else whole
        found[made.storage.key] = converted(original(made.view), tensor.dtype, edit)
    return found


def _plan(checkpoint: Checkpoint, edit: Cast) -> _Plan:
    """Return the plan: worked out once, though it is asked for what tensors become and for what storages hold."""
    plans = _plans(checkpoint)
    if edit not in plans:
        plans[edit] = _planned(checkpoint, edit)
    return plans[edit]


@cached_by_identity
def _plans(checkpoint: Checkpoint) -> dict[Cast, _Plan]:
    return {}


def _planned(checkpoint: Checkpoint, edit: Cast) -> _Plan:
    wanted = set(edit.paths)
    found = {tensor.path: tensor for tensor in checkpoint.tensors if tensor.path in wanted}
    for path in edit.paths:
        if path not in found:
            raise missing(path)
        require_castable(found[path], edit)
    chosen = {path: tensor for path, tensor in found.items() if tensor.dtype.name != edit.dtype}
    users = Counter([each.storage.key for each in views(checkpoint.tensors) if each.storage is not None])
    by_storage: dict[str, list[Tensor]] = {}
    for tensor in chosen.values():
        if tensor.storage is not None:
            by_storage.setdefault(tensor.storage.key, []).append(tensor)
    whole: dict[str, _Made] = {}
    single: dict[KeyPath, _Made] = {}
    for key, tensors in by_storage.items():
        first, width = tensors[0], tensors[0].dtype.bits // 8
        assert first.storage is not None
        alike = len({tensor.dtype.name for tensor in tensors}) == 1 and first.storage.nbytes % width == 0
        if alike and users[key] == len(tensors):
            view = View(key, 0, width, (first.storage.nbytes // width,), (1,))
            whole[key] = _Made(view, _storage(view, first, edit))
        else:
            for tensor in tensors:
                view = view_of(tensor)
                single[tensor.path] = _Made(view, _storage(view, tensor, edit))
    return _Plan(whole, single, chosen)


def _storage(view: View, tensor: Tensor, edit: Cast) -> Storage:
    """Return the new storage: the same for the same elements of the same one."""
    old = tensor.storage
    assert old is not None
    holds, dtype = converted(view, tensor.dtype, edit), BY_NAME[edit.dtype]
    return Storage(storage_name(holds, dtype, [old.nbytes]), nbytes(holds), dtype, old.device, None)


def _told(checkpoint: Checkpoint, edit: Cast, after: Checkpoint) -> Iterator[Change]:
    """Yield one change for each dtype that tensors had, and each place."""
    wanted = set(edit.paths)
    groups: dict[tuple[KeyPath, str], list[str]] = {}
    for tensor in checkpoint.tensors:
        if tensor.path in wanted and tensor.dtype.name != edit.dtype:
            groups.setdefault((tensor.path[:-1], tensor.dtype.name), []).append(show_part(tensor.path[-1]))
    for (place, dtype), names in groups.items():
        pairs = tuple([(f"{name} [{dtype}]", f"{name} [{edit.dtype}]") for name in names])
        yield Change("cast", pairs, ((len(names), "tensor"),), place)


CAST = Act(cast, _told, cast_storages)
