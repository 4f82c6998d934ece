"""Turns a graph into what ``torch.save`` would write today: protocol 2, text, and ``_rebuild_tensor_v2`` for tensors.

Every value stays what it is. What protocol 2 cannot say, or only by names that torch refuses, refuses the edit.
"""

from __future__ import annotations

from ckptdoctor.edits import Repickle
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch.patch.graph_edit import GraphEdit
from ckptdoctor.formats.torch.patch.new_nodes import NewNodes
from ckptdoctor.formats.torch.read.objects import DICTS, LISTS
from ckptdoctor.formats.torch.read.values import CALLS, bare, filling, full_name, items
from ckptdoctor.pickles import canonical
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import (
    NO_MEMO,
    Constant,
    Global,
    Made,
    Mutation,
    PersistentId,
    PickleNode,
    Popped,
    Revisit,
    String,
    Tuple,
    Value,
    Verbatim,
    nodes,
)

_PROTOCOL = 2
_LONGEST = (1 << 32) - 1  # bytes of a text that BINUNICODE can count

_OLD_STRINGS = frozenset({op.STRING, op.BINSTRING, op.SHORT_BINSTRING})
_BYTES = frozenset({op.SHORT_BINBYTES, op.BINBYTES, op.BINBYTES8})
_BUFFERS = frozenset({op.NEXT_BUFFER, op.READONLY_BUFFER})
_OLD_TENSOR, _TENSOR = "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"
_ARRAY_MAKERS = frozenset({"numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"})
_NUMBER_MAKERS = frozenset({"numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"})


def repickle(graph: GraphEdit, edit: Repickle) -> list[Value]:
    """Return the frozensets, of which ``require_none`` is asked in the end.

    Raise RefusedError for what protocol 2 cannot say plainly.
    """
    found = graph.nodes()
    for node in found:
        if isinstance(node, Global):
            _name_anew(graph, node)
    pickle = graph.pickle
    pickle.protocol, pickle.memoize, pickle.frames = _PROTOCOL, False, []
    writer = _Writer(graph, edit.encoding)
    for node in found:
        writer.hold_values(node)
    for node in found:
        writer.rewrite(node)
    graph.root.put(writer.leaf(graph.root.value))
    graph.rebuilt()
    return writer.frozen


def require_none(frozen: list[Value], root: Value) -> None:
    """Raise RefusedError where one of the frozensets is still there."""
    left = set(map(id, frozen)) if frozen else set()
    if left and any(id(node) in left for node in nodes(root)):
        raise RefusedError("The file holds a frozenset, which torch rejects in every pickle protocol.")


def _name_anew(graph: GraphEdit, node: Global) -> None:
    """Write GLOBAL with the names of Python 2, which readers translate back."""
    if graph.pickle.protocol <= _PROTOCOL or node.op == op.INST:
        return
    named = written_in_protocol_2(node.module, node.name)
    if named is None:
        raise RefusedError(f"Protocol 2 cannot name {node.full}, so the pickle is not rewritten.")
    node.op, node.parts = op.GLOBAL, None
    node.module, node.name = named


def _values_of(node: PickleNode) -> list[Value]:
    """Return the list that ends in the values of an array or number of NumPy; empty for anything else."""
    if not isinstance(node, Made) or node.op not in CALLS:
        return []
    name = full_name(node.items[0])
    if name in _NUMBER_MAKERS:
        held, length = items(node.items[1]), 2
    elif name in _ARRAY_MAKERS and (states := filling(node).states):
        held, length = items(states[-1]), 5
    else:
        return []
    return held if held is not None and len(held) == length else []


class _Writer:
    """Rewrites nodes in place, and puts others where that cannot be; each old one once."""

    def __init__(self, graph: GraphEdit, encoding: str | None) -> None:
        self._graph = graph
        self._new = NewNodes(graph)
        self._encoding = encoding
        self._made: dict[int, Value] = {}
        self.frozen: list[Value] = []
        self._kept: list[PickleNode] = []  # so that no new node gets the id of one that has gone

    def hold_values(self, node: PickleNode) -> None:
        """A string of Python 2 that is the values of an array or number becomes bytes there, whoever shares it."""
        held = _values_of(node)
        last = bare(held[-1]) if held else None
        if isinstance(last, String) and last.op in _OLD_STRINGS:
            held[-1] = self._bytes(last.value if isinstance(last.value, bytes) else last.value.encode("utf-8"))

    def rewrite(self, node: PickleNode) -> None:
        """Rewrite the node, and the texts and constants directly in it."""
        if isinstance(node, Made):
            self._rewrite_made(node)
            node.items[:] = [self.leaf(value) for value in node.items]
            for step in node.steps or ():
                step.payload[:] = [self.leaf(value) for value in step.payload]
        elif isinstance(node, Tuple):
            if node.op == op.FROZENSET:
                return  # ``leaf`` has put another in its place
            if node.op == op.TUPLE and len(node.items) <= 3:
                node.op = op.TUPLE1 if node.items else op.EMPTY_TUPLE  # the encoder finds the one for its length
            node.items[:] = [self.leaf(value) for value in node.items]
        elif isinstance(node, PersistentId):
            if node.op in _BUFFERS:
                raise RefusedError("A part of the pickle is outside of the file, so it is not rewritten.")
            node.op, node.id = op.BINPERSID, self.leaf(node.id)
        elif isinstance(node, Popped):
            node.discarded[:] = [self.leaf(value) for value in node.discarded]
            node.result = self.leaf(node.result)
            if isinstance(node, Revisit) and any(step.op == op.ADDITEMS for step in node.steps):
                raise RefusedError("A set contains itself, so the pickle is not rewritten.")

    def leaf(self, value: Value) -> Value:
        """Return what stands for a text or a constant; other values are left."""
        if isinstance(value, Constant):
            value.raw = canonical.constant(value.value, _PROTOCOL)
            return value if value.memo != NO_MEMO else value.value
        frozen = isinstance(value, Tuple) and value.op == op.FROZENSET
        if not frozen and not isinstance(value, String):
            return value
        if id(value) not in self._made:
            assert isinstance(value, (String, Tuple))
            self._made[id(value)] = self._text(value) if isinstance(value, String) else self._frozen(value)
            self._kept.append(value)
        return self._made[id(value)]

    def _frozen(self, node: Tuple) -> Value:
        """Return ``frozenset([…])``, which is only wanted where it will be left out: torch rejects that name."""
        listed = self._new.kept(Made(op.EMPTY_LIST))
        listed.steps = _batches([self.leaf(value) for value in node.items])
        self.frozen.append(self._called(node, "__builtin__.frozenset", [listed]))
        return self.frozen[-1]

    def _text(self, text: String) -> Value:
        if text.op == op.BYTEARRAY8:
            assert isinstance(text.value, bytes)
            return self._called(text, "__builtin__.bytearray", [self._bytes(text.value)] if text.value else [])
        if text.op in _BYTES:
            assert isinstance(text.value, bytes)
            return self._bytes(text.value, text)
        value = text.value
        if isinstance(value, bytes):
            if self._encoding is None:
                return text
            value = value.decode(self._encoding)
        if len(value) > _LONGEST >> 2 and len(value.encode("utf-8", "surrogatepass")) > _LONGEST:
            raise RefusedError("Protocol 2 cannot hold a text of 4 GiB, so the pickle is not rewritten.")
        if isinstance(text, Verbatim):
            return String(op.BINUNICODE, value, text.memo)
        text.op, text.value = op.BINUNICODE, value
        return text

    def _bytes(self, value: bytes, like: String | None = None) -> Made:
        """Return bytes as Python's pickler writes them before protocol 3: as text that is to be encoded."""
        given: list[Value] = [self._new.text(value.decode("latin1")), self._new.text("latin1", shared=True)]
        return self._called(like, "_codecs.encode", given)

    def _called(self, like: String | Tuple | None, name: str, given: list[Value]) -> Made:
        """Return a call that the memo remembers, where it remembered what the call stands for."""
        made = self._new.called(name, given)
        made.memo = like.memo if like is not None else NO_MEMO
        return self._new.kept(made)

    # ---- containers and calls

    def _rewrite_made(self, node: Made) -> None:
        if node.op == op.EMPTY_SET:
            self._set(node)
        elif any(step.op == op.ADDITEMS for step in node.steps or ()):
            raise RefusedError("An object that is not a set is filled like one, so the pickle is not rewritten.")
        elif node.op in (op.LIST, op.DICT):
            self._filled(node)
        elif node.op == op.NEWOBJ_EX:
            keywords = bare(node.items[2])
            if not isinstance(keywords, Made) or keywords.op not in DICTS or filling(keywords).keys:
                raise RefusedError("An object is made with keyword arguments, which protocol 2 cannot express.")
            node.op, node.items = op.NEWOBJ, node.items[:2]
        elif node.op == op.REDUCE:
            self._called_anew(node)

    def _set(self, node: Made) -> None:
        """Write ``set([…])``: steps of filling become the list."""
        if any(step.late or step.op not in (op.ADDITEMS, op.PUT) for step in node.steps or ()):
            raise RefusedError("A set contains itself, so the pickle is not rewritten.")
        listed = self._new.kept(Made(op.EMPTY_LIST))
        found = [self.leaf(value) for value in filling(node).items]
        listed.steps = _batches(found)
        node.op, node.items = op.REDUCE, [self._new.named("__builtin__.set"), self._new.tuple([listed])]
        node.steps = None

    def _filled(self, node: Made) -> None:
        """Write an empty list or dict, and what is put into it."""
        code, first = (op.EMPTY_LIST, op.APPENDS) if node.op in LISTS else (op.EMPTY_DICT, op.SETITEMS)
        filled = [Mutation(first, node.items)] if node.items else []
        node.op, node.items, node.steps = code, [], [*filled, *(node.steps or ())] or None

    def _called_anew(self, node: Made) -> None:
        name, given = full_name(node.items[0]), items(node.items[1])
        if name == _OLD_TENSOR and given is not None and len(given) == 4:
            node.items = [self._new.named(_TENSOR), self._new.tuple([*map(self.leaf, given), False, self._hooks()])]
        elif name == "builtins.bytes" and given == [] and not node.steps:  # torch refuses this name
            texts: list[Value] = [self._new.text(""), self._new.text("latin1", shared=True)]
            node.items = [self._new.named("_codecs.encode"), self._new.tuple(texts)]

    def _hooks(self) -> Made:
        return self._new.ordered_dict()


def _batches(values: list[Value]) -> list[Mutation] | None:
    """Return the steps that fill a list, a thousand values at once, as Python's pickler does."""
    size = 1000
    parts = [values[at : at + size] for at in range(0, len(values), size)]
    return [Mutation(op.APPEND if len(part) == 1 else op.APPENDS, part) for part in parts] or None


# ---- names of classes and functions as protocol 2 writes them: those of Python 2, which readers translate back


# how Python 2 calls the modules and built-ins that Python 3 renamed and checkpoints name
_MODULES = {"builtins": "__builtin__", "copyreg": "copy_reg"}
_BUILTINS = {"range": "xrange", "str": "unicode", "int": "long", "chr": "unichr"}


def written_in_protocol_2(module: str, name: str) -> tuple[str, str] | None:
    """Return the module and name for GLOBAL, or None where readers would take them for another, or cannot read them."""
    from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

    if "." in name or not f"{module}{name}".isascii() or not f"{module}{name}".isprintable():
        return None
    written = _MODULES.get(module, module), _BUILTINS.get(name, name) if module == "builtins" else name
    back = NAME_MAPPING.get(written, (IMPORT_MAPPING.get(written[0], written[0]), written[1]))
    return written if back == (module, name) else None
