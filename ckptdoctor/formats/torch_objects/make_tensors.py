"""Arrays of NumPy become tensors, their elements storages, as ``torch.save`` writes tensors."""

from __future__ import annotations

from ckptdoctor.checkpoint import KeyPath, Part, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits import MakeTensors
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch_objects.arrays import Array, array_of, buffer_of, own_elements
from ckptdoctor.formats.torch_objects.edit_storages import StorageEdits
from ckptdoctor.formats.torch_objects.graph_edit import GraphEdit
from ckptdoctor.formats.torch_objects.new_nodes import NewNodes
from ckptdoctor.formats.torch_objects.views import OddTensor, shape_of
from ckptdoctor.formats.torch_objects.views_in_graph import tuple_of
from ckptdoctor.pickles.graph import Made, Value

_TYPED, _UNTYPED = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"


def make_tensors(graph: GraphEdit, storages: StorageEdits, edit: MakeTensors) -> None:
    """Raises RefusedError where there is no array whose elements torch has."""
    new = NewNodes(graph)
    by_parent: dict[KeyPath, list[Part]] = {}
    for path in edit.paths:
        if not path:
            raise RefusedError("The whole contents are an array, which is no checkpoint.")
        by_parent.setdefault(path[:-1], []).append(path[-1])
    for parent in by_parent:
        graph.children(parent)  # everything is copied that must be before any place is remembered
    for parent, parts in by_parent.items():
        found = graph.children(parent)
        for part in parts:
            if part not in found:
                raise RefusedError(f"There is nothing at {show_path((*parent, part))} to change.")
            slot = found[part][-1].value
            array = array_of(slot.value) or buffer_of(slot.value)
            made = None if array is None else _tensor(new, storages, array)
            if made is None:
                raise RefusedError(f"{show_path((*parent, part))} is no array that can become a tensor.")
            slot.put(made)
    graph.rebuilt()


def _tensor(new: NewNodes, storages: StorageEdits, array: Array) -> Made | None:
    if array.element is None:
        return None
    element = BY_NAME[array.element]
    try:
        shape = shape_of(array.shape, element)
    except OddTensor:
        return None
    data = own_elements(array, element, shape)
    if data is None:
        return None
    stride = contiguous_stride(shape[::-1])[::-1] if array.fortran else contiguous_stride(shape)
    sizes = [new.tuple(list(tuple_of(numbers).items)) for numbers in (shape, stride)]
    given: list[Value] = [storages.hold(new, data, element), 0, *sizes, False, new.ordered_dict()]
    if element.storage_class is not None:
        return new.kept(new.called(_TYPED, given))
    return new.kept(new.called(_UNTYPED, [*given, new.named(f"torch.{element.name}")]))
