"""Casts tensors on the graph: whole storages where all of their tensors are cast, else storages of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptdoctor.checkpoint import KeyPath, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.edits import Cast
from ckptdoctor.edits.casts import converted
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch_objects.edit_storages import KEY, KIND, NUMEL, StorageEdits
from ckptdoctor.formats.torch_objects.graph_edit import GraphEdit
from ckptdoctor.formats.torch_objects.new_nodes import NewNodes
from ckptdoctor.formats.torch_objects.slots import Slot
from ckptdoctor.formats.torch_objects.states import is_changed
from ckptdoctor.formats.torch_objects.storages import claim_of
from ckptdoctor.formats.torch_objects.values import CALLS, bare, call, full_name, items
from ckptdoctor.formats.torch_objects.views_in_graph import (
    PARAMETER_MAKERS,
    Users,
    View,
    users_of_storages,
    view_in,
)
from ckptdoctor.noun import noun
from ckptdoctor.pickles.graph import Made, PersistentId, Value

_V3_DTYPE = 6  # where the arguments of _rebuild_tensor_v3 have the dtype


@noun
class _Found:
    """A tensor that is cast: where it stands, what it views, and the nodes that make it."""

    path: KeyPath
    slot: Slot
    view: View
    nodes: tuple[Made, ...]


def cast(graph: GraphEdit, storages: StorageEdits, edit: Cast) -> None:
    """Cast the tensors at the edit's paths. Raises RefusedError where one is no plain tensor."""
    found = [each for each in _found(graph, storages, edit) if each.view.dtype.name != edit.dtype]
    if not found:
        return
    users = users_of_storages(graph.nodes())
    ways = Counter([id(node) for each in found for node in each.nodes])
    by_storage: dict[str, list[_Found]] = {}
    for each in found:
        by_storage.setdefault(each.view.claim.key, []).append(each)
    new = NewNodes(graph)
    single: list[_Found] = []
    for key, tensors in by_storage.items():
        alone = all(graph.references(node) <= ways[id(node)] for each in tensors for node in each.nodes)
        if alone and _are_all(tensors, users[key], storages.nbytes(key)):
            _cast_storage(storages, edit, tensors[0].view, users[key], new)
        else:
            single += tensors
    for each in single:
        _cast_tensor(storages, edit, each, new)
    graph.rebuilt()


def _found(graph: GraphEdit, storages: StorageEdits, edit: Cast) -> Iterator[_Found]:
    paths = list(dict.fromkeys(edit.paths))
    parents = dict.fromkeys([path[:-1] for path in paths if path])
    for parent in parents:
        graph.children(parent)  # everything is copied that must be before any place is remembered
    children = {parent: graph.children(parent) for parent in parents}
    for path in paths:
        there = children[path[:-1]].get(path[-1]) if path else None
        if path and not there:
            raise RefusedError(f"There is nothing at {show_path(path)} to change.")
        yield _seen(there[-1].value if there else graph.root, path, storages)


def _seen(slot: Slot, path: KeyPath, storages: StorageEdits) -> _Found:
    """The tensor in a slot, of which nothing is changed yet."""
    nodes: list[Made] = []
    value = slot.value
    while True:
        node = bare(value)
        if not isinstance(node, Made) or node.op not in CALLS or is_changed(node):
            break
        nodes.append(node)
        callee, arguments, _ = call(node)
        name = full_name(callee)
        if name in PARAMETER_MAKERS and arguments:
            value = arguments[0]
            continue
        view = view_in(name, arguments)
        if view is None or view.claim.view is not None:
            break
        if view.reach * view.itemsize > storages.nbytes(view.claim.key):
            break
        return _Found(path, slot, view, tuple(nodes))
    raise RefusedError(f"{show_path(path)} is not a plain tensor, and cannot be cast.")


def _are_all(tensors: list[_Found], used: Users, nbytes: int) -> bool:
    """Whether nothing else views the storage, and all in one dtype."""
    mine = {id(each.view.arguments) for each in tensors}
    kinds = {each.view.dtype.name for each in tensors}
    every = not used.bare and all(id(view.arguments) in mine for view in used.views)
    return every and len(kinds) == 1 and nbytes % tensors[0].view.itemsize == 0


def _cast_storage(storages: StorageEdits, edit: Cast, view: View, used: Users, new: NewNodes) -> None:
    """Every reference to the storage becomes one to its cast; what the tensors view of it stays."""
    key, nbytes = storages.exchange(view.claim.key, edit, view.dtype, view.claim.device)
    name = new.text(key)
    for each in used.views:
        _put_dtype(each, edit, new)
    for reference in used.references:
        _refer(storages.own_id(reference), reference, edit, name, nbytes, new)


def _cast_tensor(storages: StorageEdits, edit: Cast, found: _Found, new: NewNodes) -> None:
    """The tensor becomes all of a storage of its own, in C order."""
    view = storages.view(found.slot, found.path, "cast")
    made, origin = (converted(each, view.dtype, edit) for each in (storages.elements_of(view), storages.original(view)))
    storages.put(view, made, origin)
    _put_dtype(view, edit, new)
    reference = bare(view.arguments[0])
    assert isinstance(reference, PersistentId)
    parts = items(reference.id) or []
    _refer(parts, reference, edit, parts[KEY], storages.nbytes(_key(reference)), new)


def _key(reference: PersistentId) -> str:
    claim = claim_of(reference)
    assert claim is not None
    return claim.key


def _refer(parts: list[Value], reference: PersistentId, edit: Cast, key: Value, nbytes: int, new: NewNodes) -> None:
    """Class, key and length of the storage that a persistent id names."""
    claim, element = claim_of(reference), BY_NAME[edit.dtype]
    assert claim is not None
    typed = claim.dtype is not None
    if typed:
        parts[KIND] = new.named(f"torch.{element.storage_class}")
    parts[KEY] = key
    parts[NUMEL] = nbytes // (element.bits // 8 if typed else 1)


def _put_dtype(view: View, edit: Cast, new: NewNodes) -> None:
    """What makes a tensor of an untyped storage is told its dtype."""
    if view.claim.dtype is None and len(view.arguments) > _V3_DTYPE:
        view.arguments[_V3_DTYPE] = new.named(f"torch.{edit.dtype}")
