"""Tensors of devices without storages become tensors of the CPU, as ``torch.load`` makes with ``map_location="cpu"``.

The call that moves a tensor to the device gives way to the call, inside it, that makes the tensor on the CPU. Where
that is an array of NumPy, its elements get a storage.
"""

from __future__ import annotations

from collections.abc import Collection

from ckptdoctor.checkpoint import DType
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.formats.torch.patch.graph_edit import GraphEdit
from ckptdoctor.formats.torch.patch.new_nodes import NewNodes
from ckptdoctor.formats.torch.patch.new_storages import NewStorages
from ckptdoctor.formats.torch.read.arrays import Array, array_of, elements
from ckptdoctor.formats.torch.read.movers import GRAD, Mover, inside_type, mover
from ckptdoctor.formats.torch.read.values import CALLS, bare, call, dtype, full_name
from ckptdoctor.formats.torch.read.views import OddTensor, shape_of
from ckptdoctor.formats.torch.read.views_in_graph import TYPE_MAKERS, tuple_of, view_in
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, PersistentId, Tuple, Value


def move_to_cpu(graph: GraphEdit, storages: NewStorages, devices: Collection[str]) -> None:
    """Whatever else stands where the tensors of these devices stand, and whoever shares them, stays as it is."""
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
        """The call that makes the tensor on the CPU; None where the file does not say plainly what it holds."""
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
        """The storage of an array's elements: one for all tensors that were made of the array."""
        name = id(array.node), element.name
        if name not in self._storages_of:
            self._storages_of[name] = self._storages.hold(self._new, data, element)
            return self._storages_of[name]
        reference = self._storages_of[name]
        identity = bare(reference.id)
        assert isinstance(identity, Tuple)
        return PersistentId(reference.op, self._new.tuple(list(identity.items)))
