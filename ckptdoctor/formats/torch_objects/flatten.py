"""Objects of the graph that become state dicts of the tensors inside them, as ``torch.save`` writes state dicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ckptdoctor.checkpoint import KeyPath, Part, show_path
from ckptdoctor.edits import Flatten
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch_objects.graph_edit import GraphEdit
from ckptdoctor.formats.torch_objects.shapes import ORDERED_DICT
from ckptdoctor.formats.torch_objects.slots import children
from ckptdoctor.formats.torch_objects.texts import new_text
from ckptdoctor.formats.torch_objects.values import CALLS, bare, call, full_name
from ckptdoctor.formats.torch_objects.views_in_graph import PARAMETER_MAKERS, TYPE_MAKERS
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import NO_MEMO, Global, Made, PersistentId, Step, Tuple, Value

_UTILS = "torch._utils._rebuild_"
_OLD, _TODAY, _SPARSE = f"{_UTILS}tensor", f"{_UTILS}tensor_v2", f"{_UTILS}sparse_tensor"

# where the functions that rebuild tensors take requires_grad
_GRAD = {_TODAY: 4, f"{_UTILS}tensor_v3": 4, f"{_UTILS}qtensor": 5, f"{_UTILS}meta_tensor_no_storage": 3}

_BATCH = 1000  # entries that Python's pickler sets at once

_Node = TypeVar("_Node", Made, Tuple, Global)


def flatten(graph: GraphEdit, edit: Flatten) -> None:
    """The object becomes an OrderedDict. Raises RefusedError when it, or one of the tensors, is not there."""
    slot = graph.slot(edit.path)
    found = _values(slot.value, [place for _, place in edit.tensors], edit.path)
    writer = _Writer(graph)
    entries: list[Value] = []
    for (key, _), value in zip(edit.tensors, found, strict=True):
        name = new_text(graph.pickle, key)
        name.memo = graph.new_memo()
        entries += (name, writer.detached(value))
    slot.put(writer.ordered_dict(entries))
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

    def __init__(self, graph: GraphEdit) -> None:
        self._graph = graph
        self._globals = {node.full: node for node in reversed(graph.nodes()) if isinstance(node, Global)}
        self._used: set[int] = set()

    def ordered_dict(self, entries: list[Value] | None = None) -> Made:
        """``OrderedDict()``, and the entries (keys and values in turn) as they are set in it."""
        made = self._kept(Made(op.REDUCE, [self._named(ORDERED_DICT), Tuple(op.EMPTY_TUPLE, [])]))
        width = 2 * _BATCH
        batches = [entries[at : at + width] for at in range(0, len(entries), width)] if entries else []
        made.steps = [Step(op.SETITEM if len(each) == 2 else op.SETITEMS, each) for each in batches] or None
        return made

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
            node = self._called(_TODAY, [*arguments[:4], False, self.ordered_dict()])
        elif place < len(arguments) and bare(arguments[place]) is True:
            node = self._called(name, [*arguments[:place], False, *arguments[place + 1 :]])
        elif id(node) in self._used or self._graph.references(node) > 1:
            node = self._again(node)
        self._used.add(id(node))
        return self._kept(node)

    def _again(self, node: Made) -> Made:
        """Another tensor like it: its arguments are written again, as they are for every tensor."""
        arguments = bare(node.items[1])
        if node.op != op.REDUCE or not isinstance(arguments, Tuple):
            return Made(node.op, list(node.items))
        return Made(op.REDUCE, [node.items[0], self._tuple([self._fresh(each) for each in arguments.items])])

    def _fresh(self, argument: Value) -> Value:
        """A copy of one argument: of the storage, the shape, the hooks (there are none); other things are shared."""
        argument = bare(argument)
        if isinstance(argument, PersistentId):
            identity = bare(argument.id)
            parts = identity.items if isinstance(identity, Tuple) else None
            return argument if parts is None else PersistentId(argument.op, self._tuple(list(parts)))
        if isinstance(argument, Tuple):
            return self._tuple(list(argument.items)) if argument.items else argument
        if isinstance(argument, Made) and not argument.steps and argument.op == op.REDUCE:
            return self.ordered_dict() if full_name(argument.items[0]) == ORDERED_DICT else argument
        return argument

    def _tuple(self, values: list[Value]) -> Tuple:
        return self._kept(Tuple(op.TUPLE1, values))  # the encoder finds the opcode for its length

    def _called(self, name: str, arguments: list[Value]) -> Made:
        return Made(op.REDUCE, [self._named(name), self._tuple(arguments)])

    def _named(self, name: str) -> Global:
        """The class or function of this name: the one that the pickle names already, if it does."""
        if name not in self._globals:
            module, _, own = name.rpartition(".")
            self._globals[name] = self._kept(Global(op.GLOBAL, module, own))
        return self._globals[name]

    def _kept(self, node: _Node) -> _Node:
        """The node with a place in the memo, so that others can share it."""
        if node.memo == NO_MEMO:
            node.memo = self._graph.new_memo()
        return node


def _opened(value: Value) -> tuple[Made, str | None, list[Value]]:
    """A call with its function and arguments. Raises RefusedError for anything else."""
    node = bare(value)
    if not isinstance(node, Made) or node.op not in CALLS:
        raise RefusedError("What was to become a tensor of a state dict is none.")
    callee, arguments, _ = call(node)
    return node, full_name(callee), arguments
