"""Nodes that are made anew, written as ``torch.save`` writes them."""

from __future__ import annotations

from typing import TypeVar

from ckptdoctor.formats.torch.patch.graph_edit import GraphEdit
from ckptdoctor.formats.torch.patch.texts import new_text
from ckptdoctor.formats.torch.read.shapes import ORDERED_DICT
from ckptdoctor.formats.torch.read.values import bare, full_name
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import NO_MEMO, Global, Made, PersistentId, Step, Text, Tuple, Value

_BATCH = 1000  # entries that Python's pickler sets at once

_Node = TypeVar("_Node", Made, Tuple, Global, Text)


class NewNodes:
    """Makes nodes for one graph. Classes and functions that the pickle names already are not named again."""

    def __init__(self, graph: GraphEdit) -> None:
        self._graph = graph
        self._globals = {node.full: node for node in reversed(graph.nodes()) if isinstance(node, Global)}
        self._texts: dict[str, Text] = {}

    def ordered_dict(self, entries: list[Value] | None = None) -> Made:
        """``OrderedDict()``, and the entries (keys and values in turn) as they are set in it."""
        made = self.kept(Made(op.REDUCE, [self.named(ORDERED_DICT), Tuple(op.EMPTY_TUPLE, [])]))
        width = 2 * _BATCH
        batches = [entries[at : at + width] for at in range(0, len(entries), width)] if entries else []
        made.steps = [Step(op.SETITEM if len(each) == 2 else op.SETITEMS, each) for each in batches] or None
        return made

    def called(self, name: str, arguments: list[Value]) -> Made:
        """A call of the function or class of this name."""
        return Made(op.REDUCE, [self.named(name), self.tuple(arguments)])

    def tuple(self, values: list[Value]) -> Tuple:
        """A tuple, which the memo remembers unless it is empty."""
        if not values:
            return Tuple(op.EMPTY_TUPLE, [])
        return self.kept(Tuple(op.TUPLE1, values))  # the encoder finds the opcode for its length

    def named(self, name: str) -> Global:
        """The class or function of this name."""
        if name not in self._globals:
            module, _, own = name.rpartition(".")
            self._globals[name] = self.kept(Global(op.GLOBAL, module, own))
        return self._globals[name]

    def text(self, value: str, *, shared: bool = False) -> Text:
        """A text; a shared one is the same each time, as constants of a program are."""
        if not shared:
            return self.kept(new_text(self._graph.pickle, value))
        if value not in self._texts:
            self._texts[value] = self.kept(new_text(self._graph.pickle, value))
        return self._texts[value]

    def again(self, node: Made) -> Made:
        """Another tensor like it: its arguments are written again, as they are for every tensor."""
        arguments = bare(node.items[1])
        if node.op != op.REDUCE or not isinstance(arguments, Tuple):
            return Made(node.op, list(node.items))
        return Made(op.REDUCE, [node.items[0], self.tuple([self._fresh(each) for each in arguments.items])])

    def _fresh(self, argument: Value) -> Value:
        """A copy of one argument: of the storage, the shape, the hooks (there are none); other things are shared."""
        argument = bare(argument)
        if isinstance(argument, PersistentId):
            identity = bare(argument.id)
            parts = identity.items if isinstance(identity, Tuple) else None
            return argument if parts is None else PersistentId(argument.op, self.tuple(list(parts)))
        if isinstance(argument, Tuple):
            return self.tuple(list(argument.items)) if argument.items else argument
        if isinstance(argument, Made) and not argument.steps and argument.op == op.REDUCE:
            return self.ordered_dict() if full_name(argument.items[0]) == ORDERED_DICT else argument
        return argument

    def kept(self, node: _Node) -> _Node:
        """The node with a place in the memo, so that others can share it."""
        if node.memo == NO_MEMO:
            node.memo = self._graph.new_memo()
        return node
