"""What is around a tensor in the graph: Parameters, classes that wrap another tensor, sparse layouts."""

from __future__ import annotations

from collections.abc import Collection

from ckptdoctor.checkpoint import KeyPath, show_path
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch.patch.graph_edit import GraphEdit
from ckptdoctor.formats.torch.patch.new_nodes import NewNodes
from ckptdoctor.formats.torch.read.arguments import plain_dict
from ckptdoctor.formats.torch.read.movers import FROM_CPU, GRAD
from ckptdoctor.formats.torch.read.slots import Slot
from ckptdoctor.formats.torch.read.states import is_changed
from ckptdoctor.formats.torch.read.values import CALLS, bare, call, full_name, items
from ckptdoctor.formats.torch.read.views_in_graph import PARAMETER_MAKERS, TYPE_MAKERS, VIEW_MAKERS
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, Value

_UTILS = "torch._utils._rebuild_"
_OLD, _TODAY, _SPARSE = f"{_UTILS}tensor", f"{_UTILS}tensor_v2", f"{_UTILS}sparse_tensor"

# where the functions that rebuild tensors take requires_grad
_GRAD = {**GRAD, FROM_CPU: 3, f"{_UTILS}meta_tensor_no_storage": 3}


class Detacher:
    """Makes the calls of one graph. A tensor that stands under two keys is made twice, as torch does."""

    def __init__(self, graph: GraphEdit, new: NewNodes) -> None:
        self._graph = graph
        self._new = new
        self._used: set[int] = set()

    def detached(self, value: Value) -> Made:
        """The tensor itself: that of a Parameter, without requires_grad, without attributes of its own."""
        node, name, arguments = _opened(value)
        while name in PARAMETER_MAKERS and arguments:
            node, name, arguments = _opened(arguments[0])
        if name in TYPE_MAKERS and len(arguments) == 4:
            node = Made(op.REDUCE, [arguments[0], arguments[2]])
            node, name, arguments = _opened(node)
        if name is None or (name not in _GRAD and name not in (_OLD, _SPARSE)):
            raise RefusedError(f"What {name or 'a call'} makes is no tensor that can stand in a state dict.")
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
    """A call with its function and arguments. Raises RefusedError for anything else."""
    node = bare(value)
    if not isinstance(node, Made) or node.op not in CALLS or is_changed(node):
        raise RefusedError("What was to become a tensor of a state dict is none.")
    callee, arguments, _ = call(node)
    return node, full_name(callee), arguments


def sparse_in(graph: GraphEdit, slot: Slot, path: KeyPath) -> Slot:
    """The place of the call that makes the sparse tensor, which belongs to ``path`` alone: a Parameter stays around it.

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
    """The plain tensors among the attributes of a wrapper."""
    found = []
    for one in items(state) or [state]:
        for value in plain_dict(one).values():
            node = bare(value)
            if isinstance(node, Made) and node.op in CALLS and full_name(call(node)[0]) in VIEW_MAKERS:
                found.append(node)
    return found
