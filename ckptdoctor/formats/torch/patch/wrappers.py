"""Opens what is around a tensor in the graph: Parameters, classes that wrap it, sparse layouts, moves to a device."""

from __future__ import annotations

from collections.abc import Collection

from ckptdoctor.checkpoint import DType, KeyPath, show_path
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch.patch.graph_edit import GraphEdit
from ckptdoctor.formats.torch.patch.new_nodes import NewNodes
from ckptdoctor.formats.torch.patch.new_storages import NewStorages
from ckptdoctor.formats.torch.read.numpy_arrays import Array, array_of, elements
from ckptdoctor.formats.torch.read.rebuild import FROM_CPU, GRAD, Mover, inside_type, mover
from ckptdoctor.formats.torch.read.slots import Slot
from ckptdoctor.formats.torch.read.tensor_state import is_changed
from ckptdoctor.formats.torch.read.values import CALLS, bare, call, dtype, full_name, items, plain_dict
from ckptdoctor.formats.torch.read.views import (
    PARAMETER_MAKERS,
    TYPE_MAKERS,
    VIEW_MAKERS,
    OddTensor,
    shape_of,
    tuple_of,
    view_in,
)
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, PersistentId, Tuple, Value

_UTILS = "torch._utils._rebuild_"
_OLD, _TODAY, _SPARSE = f"{_UTILS}tensor", f"{_UTILS}tensor_v2", f"{_UTILS}sparse_tensor"

# where the functions that rebuild tensors take requires_grad
_GRAD = {**GRAD, FROM_CPU: 3, f"{_UTILS}meta_tensor_no_storage": 3}


class Detacher:
    """Makes the calls of one graph. A tensor under two keys is made twice, as torch does."""

    def __init__(self, graph: GraphEdit, new: NewNodes) -> None:
        self._graph = graph
        self._new = new
        self._used: set[int] = set()

    def detached(self, value: Value) -> Made:
        """Return the tensor itself: that of a Parameter, without requires_grad, without attributes of its own."""
        node, name, arguments = _opened(value)
        while name in PARAMETER_MAKERS and arguments:
            node, name, arguments = _opened(arguments[0])
        if name in TYPE_MAKERS and len(arguments) == 4:
            node = Made(op.REDUCE, [arguments[0], arguments[2]])
            node, name, arguments = _opened(node)
        if name is None or (name not in _GRAD and name not in (_OLD, _SPARSE)):
            raise RefusedError(f"{name or 'A call'} does not make a tensor that can be in a state dict.")
        place = _GRAD.get(name, len(arguments))
        if name == _OLD:
            node = self._new.called(_TODAY, [*arguments[:4], False, self._new.ordered_dict()])
        elif place < len(arguments) and bare(arguments[place]) is True:
            node = self._new.called(name, [*arguments[:place], False, *arguments[place + 1 :]])
        elif id(node) in self._used or self._graph.references(node) > 1:
            node = self._new.again(node)
        self._used.add(id(node))
        return self._new.kept(node)


def _opened(value: Value) -> tuple[Made, str | None, list[Value]]:
    """Return a call with its function and arguments. Raises RefusedError for anything else."""
    node = bare(value)
    if not isinstance(node, Made) or node.op not in CALLS or is_changed(node):
        raise RefusedError("A value that should become a tensor of a state dict is not a tensor.")
    callee, arguments, _ = call(node)
    return node, full_name(callee), arguments


def sparse_in(graph: GraphEdit, slot: Slot, path: KeyPath) -> Slot:
    """Return the place of the call that makes the sparse tensor, which belongs to ``path`` alone.

    A Parameter stays around it.

    Raises RefusedError where there is none.
    """
    while True:
        graph.own(slot)
        node = bare(slot.value)
        if not isinstance(node, Made) or node.op not in CALLS or len(node.items) < 2 or is_changed(node):
            break
        graph.own(Slot(node.items, 1))
        callee, arguments, _ = call(node)
        name = full_name(callee)
        if name == _SPARSE and len(arguments) == 2 and not node.steps:
            return slot
        if name not in PARAMETER_MAKERS or not arguments:
            break
        slot = Slot(arguments, 0)
    raise RefusedError(f"{show_path(path)} is not a sparse tensor that can be made dense.")


def unwrap(graph: GraphEdit, classes: Collection[str]) -> None:
    """Whoever shares a wrapper of one of these classes goes on sharing what was in it.

    A wrapper without one plain tensor stays.
    """
    if not classes:
        return
    new = NewNodes(graph)
    for node in [each for each in graph.nodes() if isinstance(each, Made) and each.op in CALLS]:
        callee, arguments, _ = call(node)
        if full_name(callee) not in TYPE_MAKERS or len(arguments) != 4 or full_name(arguments[1]) not in classes:
            continue
        inside = _wrapped(arguments[3])
        if len(inside) == 1 and not node.steps:
            (made,) = inside
            made = new.again(made) if graph.references(made) > 1 else made
            node.op, node.items = made.op, made.items
    graph.rebuilt()


def _wrapped(state: Value) -> list[Made]:
    """Return the plain tensors among the attributes of a wrapper."""
    found = []
    for one in items(state) or [state]:
        for value in plain_dict(one).values():
            node = bare(value)
            if isinstance(node, Made) and node.op in CALLS and full_name(call(node)[0]) in VIEW_MAKERS:
                found.append(node)
    return found


# ---- tensors of devices without storages become those of the CPU, as ``torch.load`` makes with ``map_location="cpu"``
#
# The call that moves a tensor to the device gives way to the call, inside it, that makes the tensor on the CPU. Where
# that is an array of NumPy, its elements get a storage.


def move_to_cpu(graph: GraphEdit, storages: NewStorages, devices: Collection[str]) -> None:
    """Move the tensors of these devices to the CPU; other values, and everything that shares them, stay as they are."""
    if not devices:
        return
    writer = _Writer(graph, storages)
    for node in [each for each in graph.nodes() if isinstance(each, Made) and each.op in CALLS]:
        callee, arguments, _ = call(node)
        name = full_name(callee)
        typed = name in TYPE_MAKERS and len(arguments) == 4
        found = mover(*(inside_type(arguments) if typed else (name, arguments)))
        if found is None or found.device not in devices:
            continue
        made = writer.on_cpu(found)
        if made is not None and typed:
            arguments[0], arguments[2] = made.items
        elif made is not None:
            node.op, node.items = made.op, made.items
    graph.rebuilt()


class _Writer:
    """Makes the calls that take the place of others."""

    def __init__(self, graph: GraphEdit, storages: NewStorages) -> None:
        self._graph = graph
        self._storages = storages
        self._new = NewNodes(graph)
        self._storages_of: dict[tuple[int, str], PersistentId] = {}  # by id of the array's node, and dtype

    def on_cpu(self, found: Mover) -> Made | None:
        """Return the call that makes the tensor on the CPU.

        It is None where the file does not say plainly what it holds.
        """
        element = dtype(found.dtype)
        if element is None:
            return None
        array = array_of(found.node)
        return self._inner(found, element) if array is None else self._of_array(found, array, element)

    def _inner(self, found: Mover, element: DType) -> Made | None:
        node, arguments = found.node, call(found.node)[1]
        view = view_in(found.maker, arguments)
        if node.op != op.REDUCE or (view is not None and (view.dtype != element or view.claim.device == found.device)):
            return None
        if self._graph.references(node) > 1:
            node = self._new.again(node)
            arguments = call(node)[1]
        place = GRAD.get(found.maker, len(arguments))
        if place >= len(arguments):
            return None if found.requires_grad else node
        if (bare(arguments[place]) is True) == found.requires_grad:
            return node
        return self._new.called(found.maker, [*arguments[:place], found.requires_grad, *arguments[place + 1 :]])

    def _of_array(self, found: Mover, array: Array, element: DType) -> Made | None:
        try:
            shape = shape_of(array.shape, element)
        except OddTensor:
            return None
        data = elements(array, element, shape)
        if data is None:
            return None
        stride = contiguous_stride(shape[::-1])[::-1] if array.fortran else contiguous_stride(shape)
        reference = self._held(array, data, element)
        sizes = [self._new.tuple(list(tuple_of(numbers).items)) for numbers in (shape, stride)]
        given: list[Value] = [reference, 0, *sizes, found.requires_grad, self._new.ordered_dict()]
        return self._new.called("torch._utils._rebuild_tensor_v2", given)

    def _held(self, array: Array, data: bytes, element: DType) -> PersistentId:
        """Return the storage of an array's elements: one for all tensors that were made of the array."""
        name = id(array.node), element.name
        if name not in self._storages_of:
            self._storages_of[name] = self._storages.hold(self._new, data, element)
            return self._storages_of[name]
        reference = self._storages_of[name]
        identity = bare(reference.id)
        assert isinstance(identity, Tuple)
        return PersistentId(reference.op, self._new.tuple(list(identity.items)))
