"""Makes new nodes of a graph, written as ``torch.save`` writes them, or as the pickle around them is written."""

from __future__ import annotations

from ast import literal_eval
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from ckptdoctor import checkpoint as nouns
from ckptdoctor.checkpoint import Opaque, Part, Special
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch.patch.graph_edit import GraphEdit
from ckptdoctor.formats.torch.read.objects import ORDERED_DICT
from ckptdoctor.formats.torch.read.values import bare, full_name
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import (
    NO_MEMO,
    Global,
    Made,
    Mutation,
    PersistentId,
    Pickle,
    String,
    Tuple,
    Value,
)

_BATCH = 1000  # entries that Python's pickler sets at once

_Node = TypeVar("_Node", Made, Tuple, Global, String)


class NewNodes:
    """Makes nodes for one graph. Classes and functions that the pickle names already are not named again."""

    def __init__(self, graph: GraphEdit) -> None:
        self._graph = graph
        self._globals = {node.full: node for node in reversed(graph.nodes()) if isinstance(node, Global)}
        self._texts: dict[str, String] = {}

    def ordered_dict(self, entries: list[Value] | None = None) -> Made:
        """Return ``OrderedDict()``, and the entries (keys and values in turn) as they are set in it."""
        made = self.kept(Made(op.REDUCE, [self.named(ORDERED_DICT), Tuple(op.EMPTY_TUPLE, [])]))
        width = 2 * _BATCH
        batches = [entries[at : at + width] for at in range(0, len(entries), width)] if entries else []
        made.steps = [Mutation(op.SETITEM if len(each) == 2 else op.SETITEMS, each) for each in batches] or None
        return made

    def called(self, name: str, arguments: list[Value]) -> Made:
        """Return a call of the function or class of this name."""
        return Made(op.REDUCE, [self.named(name), self.tuple(arguments)])

    def tuple(self, values: list[Value]) -> Tuple:
        """Return a tuple, which the memo remembers unless it is empty."""
        if not values:
            return Tuple(op.EMPTY_TUPLE, [])
        return self.kept(Tuple(op.TUPLE1, values))  # the encoder finds the opcode for its length

    def named(self, name: str) -> Global:
        """Return the class or function of this name."""
        if name not in self._globals:
            module, _, own = name.rpartition(".")
            self._globals[name] = self.kept(Global(op.GLOBAL, module, own))
        return self._globals[name]

    def text(self, value: str, *, shared: bool = False) -> String:
        """Return a text; a shared one is the same each time, as constants of a program are."""
        if not shared:
            return self.kept(new_text(self._graph.pickle, value))
        if value not in self._texts:
            self._texts[value] = self.kept(new_text(self._graph.pickle, value))
        return self._texts[value]

    def again(self, node: Made) -> Made:
        """Return another tensor like it: its arguments are written again, as they are for every tensor."""
        arguments = bare(node.items[1])
        if node.op != op.REDUCE or not isinstance(arguments, Tuple):
            return Made(node.op, list(node.items))
        return Made(op.REDUCE, [node.items[0], self.tuple([self._fresh(each) for each in arguments.items])])

    def _fresh(self, argument: Value) -> Value:
        """Return a copy of one argument: of the storage, the shape, the hooks (there are none).

        Other things are shared.
        """
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
        """Return the node with a place in the memo, so that others can share it."""
        if node.memo == NO_MEMO:
            node.memo = self._graph.new_memo()
        return node


# ---- texts, which are shared where the old ones were


_SHORT = 256  # bytes from which a text, or bytes, need a longer count


class NewText(NamedTuple):
    """The text at the place ``at`` of a list of the graph becomes ``value``."""

    holder: list[Value]
    at: int
    value: str


text_becomes = partial(tuple.__new__, NewText)  # a named tuple's own constructor takes several times as long


def replace_texts(graph: GraphEdit, changes: Sequence[NewText]) -> None:
    """Do all the changes at once.

    Slots that shared a text go on sharing what replaces it. The new text takes over the old one's memo entry when no
    other place needs that, so that undoing a change gives the original bytes again.
    """
    _replace_shared(graph, _replace_lone(graph, changes))


def _replace_lone(graph: GraphEdit, changes: Sequence[NewText]) -> list[NewText]:
    """Replace the texts that are in one place only, as nearly all are; return the changes of the others."""
    olds = [holder[at] for holder, at, _ in changes]
    met: Mapping[Value, int] = Counter(olds) if len(set(olds)) < len(olds) else {}
    counts, pickle = graph.all_references(), graph.pickle
    usual = 0 < pickle.protocol < 4
    left: list[NewText] = []
    for old, change in zip(olds, changes, strict=True):
        if type(old) is not String or met.get(old, 1) > 1 or counts.get(old, 1) != 1:
            left.append(change)
            continue
        holder, at, value = change
        if usual and old.op == op.BINUNICODE:  # as ``new_text`` makes nearly all
            holder[at] = String(op.BINUNICODE, value, old.memo)
        else:
            made = new_text(pickle, value, old)
            made.memo = old.memo
            holder[at] = made
    return left


def _replace_shared(graph: GraphEdit, changes: Sequence[NewText]) -> None:
    groups: dict[int, tuple[String | None, list[NewText]]] = {}
    for change in changes:
        old = bare(change.holder[change.at])
        text = old if isinstance(old, String) else None
        groups.setdefault(id(old) if text is not None else -len(groups) - 1, (text, []))[1].append(change)
    # counted before the first change
    free = {id(old) for old, group in groups.values() if old is not None and graph.references(old) == len(group)}
    for old, group in groups.values():
        made: dict[str, String] = {}
        for change in group:
            if change.value not in made:
                made[change.value] = new_text(graph.pickle, change.value, old)
            change.holder[change.at] = made[change.value]
            graph.recount(made[change.value], 1)
            if old is not None:
                graph.recount(old, -1)
        if old is not None and old.memo != NO_MEMO:
            _remember(graph, old, list(made.values()), id(old) in free)


def _remember(graph: GraphEdit, old: String, made: list[String], free: bool) -> None:
    """Give each new text a memo entry, as a pickler does: the first one the old text's, where that is free now."""
    if free:
        made[0].memo = old.memo
        made = made[1:]
    for text in made:
        text.memo = graph.new_memo()


def new_text(pickle: Pickle, value: str, like: String | None = None) -> String:
    """Return a text as the pickle's own writer would write it; strings of Python 2 stay such while they are ASCII."""
    if like is not None and like.op in (op.SHORT_BINSTRING, op.BINSTRING) and value.isascii():
        return String(op.SHORT_BINSTRING if len(value) < _SHORT else op.BINSTRING, value)
    if like is not None and like.op in (op.STRING, op.UNICODE):
        return String(op.UNICODE if like.op == op.UNICODE or not value.isascii() else op.STRING, value)
    if pickle.protocol < 1:
        return String(op.UNICODE, value)
    short = pickle.protocol >= 4 and len(value.encode("utf-8", "surrogatepass")) < _SHORT
    return String(op.SHORT_BINUNICODE if short else op.BINUNICODE, value)


# ---- plain Python data as values of a graph, and new nodes of a tree as plain Python data


def from_plain(pickle: Pickle, value: object) -> Value:
    """Return None, booleans, numbers, text, bytes, lists, tuples and dicts of such as the graph holds them.

    Raises RefusedError for anything else.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return new_text(pickle, value)
    if isinstance(value, bytes):
        return _bytes(pickle, value)
    if isinstance(value, complex):
        module = "__builtin__" if pickle.protocol < 3 else "builtins"
        return Made(op.REDUCE, [Global(op.GLOBAL, module, "complex"), Tuple(op.TUPLE, [value.real, value.imag])])
    if isinstance(value, tuple):
        return Tuple(op.TUPLE, [from_plain(pickle, item) for item in value])
    made = Made(op.EMPTY_LIST if isinstance(value, list) else op.EMPTY_DICT)
    if isinstance(value, list):
        payload = [from_plain(pickle, item) for item in value]
        made.steps = [Mutation(op.APPENDS, payload)] if payload else None
        return made
    if isinstance(value, dict):
        payload = [from_plain(pickle, each) for pair in value.items() for each in pair]
        made.steps = [Mutation(op.SETITEMS, payload)] if payload else None
        return made
    raise RefusedError(f"A {type(value).__name__} is not plain data, so it cannot be put into a checkpoint.")


def _bytes(pickle: Pickle, value: bytes) -> Value:
    """Return bytes as Python's pickler writes them: before protocol 3, as text that is to be encoded."""
    if pickle.protocol >= 3:
        return String(op.SHORT_BINBYTES if len(value) < _SHORT else op.BINBYTES, value)
    given: list[Value] = [new_text(pickle, value.decode("latin1")), new_text(pickle, "latin1")]
    return Made(op.REDUCE, [Global(op.GLOBAL, "_codecs", "encode"), Tuple(op.TUPLE, given)])


def plain_data(node: nouns.Node) -> object:
    """Return the Python value that a new node stands for: the reverse of ``checkpoint.tree.node_of``."""
    if isinstance(node, nouns.Sequence):
        items = [plain_data(item) for item in node.items]
        return items if node.kind == "list" else tuple(items)
    if isinstance(node, nouns.Mapping):
        return {plain_key(part): plain_data(value) for part, value in node.entries}
    if isinstance(node, Opaque) and node.class_name == "builtins.complex":
        real, imaginary = node.arguments
        assert isinstance(real, float)
        assert isinstance(imaginary, float)
        return complex(real, imaginary)
    return node


def plain_key(part: Part) -> object:
    """Return the key that a step of a path stands for."""
    return literal_eval(part.text) if isinstance(part, Special) else part
