"""Sparse tensors in a pickle give way to dense ones."""

from __future__ import annotations

from ckptdoctor.checkpoint import KeyPath, show_path
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits.elements import Scattered
from ckptdoctor.edits.kinds import Densify
from ckptdoctor.edits.sparse import COO, scattered
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch_objects.arguments import layout_name
from ckptdoctor.formats.torch_objects.edit_storages import StorageEdits
from ckptdoctor.formats.torch_objects.graph_edit import GraphEdit
from ckptdoctor.formats.torch_objects.new_nodes import NewNodes
from ckptdoctor.formats.torch_objects.slots import Slot
from ckptdoctor.formats.torch_objects.states import is_changed
from ckptdoctor.formats.torch_objects.values import CALLS, bare, call, full_name, items
from ckptdoctor.formats.torch_objects.views import shape_of
from ckptdoctor.formats.torch_objects.views_in_graph import PARAMETER_MAKERS
from ckptdoctor.pickles.graph import Made, Value

_SPARSE = "torch._utils._rebuild_sparse_tensor"


def densify(graph: GraphEdit, storages: StorageEdits, edit: Densify) -> None:
    """Each tensor becomes all of a new storage. Raises RefusedError, with the place, for what is no sparse tensor."""
    new = NewNodes(graph)
    for path in dict.fromkeys(edit.paths):
        slot, arguments = _sparse(graph, graph.slot(path), path)
        slot.put(_dense(storages, new, arguments, path))
    graph.rebuilt()


def _sparse(graph: GraphEdit, slot: Slot, path: KeyPath) -> tuple[Slot, list[Value]]:
    """Where the sparse tensor stands, which belongs to that place alone, and what it is made of."""
    while True:
        graph.own(slot)
        node = bare(slot.value)
        if not isinstance(node, Made) or node.op not in CALLS or len(node.items) < 2 or is_changed(node):
            break
        graph.own(Slot(node.items, 1))
        callee, arguments, _ = call(node)
        name = full_name(callee)
        if name == _SPARSE and len(arguments) == 2 and not node.steps:
            return slot, arguments
        if name not in PARAMETER_MAKERS or not arguments:
            break
        slot = Slot(arguments, 0)
    raise RefusedError(f"{show_path(path)} is not a sparse tensor that can be made dense.")


def _dense(storages: StorageEdits, new: NewNodes, arguments: list[Value], path: KeyPath) -> Value:
    layout, data = layout_name(arguments[0]), items(arguments[1])
    count = 2 if layout == COO else 3
    if layout is None or data is None or len(data) <= count:
        raise RefusedError(f"{show_path(path)} is not a sparse tensor that can be made dense.")
    views = [storages.view(Slot(data, number), path, "made dense") for number in range(count)]
    element, name = views[-1].dtype, show_path(path)
    shape = shape_of(data[count], element)
    made: Scattered = scattered(layout, shape, [(each.dtype, storages.elements_of(each)) for each in views], name)
    origin = scattered(layout, shape, [(each.dtype, storages.original(each)) for each in views], name)
    reference = storages.reference(new, made, element, views[-1].claim.device, origin, views[-1].reference)
    sizes: list[Value] = [new.tuple(list(each)) for each in (shape, contiguous_stride(shape))]
    given: list[Value] = [reference, 0, *sizes, False, new.ordered_dict()]
    if element.storage_class is not None:
        return new.kept(new.called("torch._utils._rebuild_tensor_v2", given))
    return new.kept(new.called("torch._utils._rebuild_tensor_v3", [*given, new.named(f"torch.{element.name}")]))
