"""Objects of the graph that become state dicts of the tensors inside them, as ``torch.save`` writes state dicts."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.checkpoint import KeyPath, Part, show_path
from ckptdoctor.edits import Flatten
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch_objects.graph_edit import GraphEdit
from ckptdoctor.formats.torch_objects.movers import FROM_CPU, GRAD
from ckptdoctor.formats.torch_objects.new_nodes import NewNodes
from ckptdoctor.formats.torch_objects.slots import children
from ckptdoctor.formats.torch_objects.states import is_changed
from ckptdoctor.formats.torch_objects.values import CALLS, bare, call, full_name
from ckptdoctor.formats.torch_objects.views_in_graph import PARAMETER_MAKERS, TYPE_MAKERS
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, Value

_UTILS = "torch._utils._rebuild_"
_OLD, _TODAY, _SPARSE = f"{_UTILS}tensor", f"{_UTILS}tensor_v2", f"{_UTILS}sparse_tensor"

# where the functions that rebuild tensors take requires_grad
_GRAD = {**GRAD, FROM_CPU: 3, f"{_UTILS}meta_tensor_no_storage": 3}


def flatten(graph: GraphEdit, edit: Flatten) -> None:
    """The object becomes an OrderedDict. Raises RefusedError when it, or one of the tensors, is not there."""
    slot = graph.slot(edit.path)
    found = _values(slot.value, [place for _, place in edit.tensors], edit.path)
    new = NewNodes(graph)
    writer = _Writer(graph, new)
    entries: list[Value] = []
    for (key, _), value in zip(edit.tensors, found, strict=True):
        entries += (new.text(key), writer.detached(value))
    slot.put(new.ordered_dict(entries))
    graph.rebuilt()


def _values(root: Value, places: Sequence[KeyPath], path: KeyPath) -> list[Value]:
    """The value at each of ``places`` below ``root``, which is at ``path``; every object on the way is read once."""
    found: list[Value] = [None] * len(places)
    stack: list[tuple[Value, int, list[int]]] = [(root, 0, list(range(len(places))))]
    while stack:
        node, depth, wanted = stack.pop()
        by_part: dict[Part, list[int]] = {}
        for index in wanted:
            if len(places[index]) == depth:
                found[index] = node
            else:
                by_part.setdefault(places[index][depth], []).append(index)
        below = children(node) if by_part else {}
        for part, indices in by_part.items():
            if part not in below:
                raise RefusedError(f"There is nothing at {show_path((*path, *places[indices[0]][: depth + 1]))}.")
            stack.append((below[part][-1].value.value, depth + 1, indices))
    return found


class _Writer:
    """Makes the nodes of one state dict. A tensor that stands under two keys is made twice, as torch does."""

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
