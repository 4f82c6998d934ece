"""A graph of inert nodes says what a pickle says, and remembers how each value was written.

``None``, booleans, integers and floats that were written the way Python's pickler writes them are held as plain
values, because a node for each would cost many times the pickle's own size. Everything else is a node. A node that
the stream stores in its memo keeps that index in ``memo`` (NO_MEMO otherwise); a node reached a second time through
the memo is the same object in the graph. Nodes are changed in place by edits: replace a reference in an ``items``
or ``payload`` list, then encode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Union

from ckptdoctor.checkpoint import LookUp
from ckptdoctor.noun import noun
from ckptdoctor.pickles.entries import Entries

NO_MEMO = -1


class PickleNode:
    """A value of the stream. ``memo`` is its index in the unpickler's memo, or NO_MEMO."""

    __slots__ = ("memo",)
    memo: int


class String(PickleNode):
    """A string: text, or bytes (bytes objects, bytearrays, and Python 2 strings that are not UTF-8).

    ``op`` is the opcode that wrote it (BINUNICODE, SHORT_BINSTRING, …); ``value`` is the decoded value.
    """

    __slots__ = ("op", "value")

    def __init__(self, op: int, value: str | bytes, memo: int = NO_MEMO) -> None:
        self.op = op
        self.value = value
        self.memo = memo


class Verbatim(String):
    """A string that was not written the canonical way for its value: ``raw`` is the opcode with its argument."""

    __slots__ = ("raw",)

    def __init__(self, op: int, value: str | bytes, raw: bytes, memo: int = NO_MEMO) -> None:
        super().__init__(op, value, memo)
        self.raw = raw


class Constant(PickleNode):
    """A constant that was not written the canonical way for its value: ``raw`` is the opcode with its argument."""

    __slots__ = ("raw", "value")

    def __init__(self, raw: bytes, value: bool | int | float | None, memo: int = NO_MEMO) -> None:
        self.raw = raw
        self.value = value
        self.memo = memo


class Global(PickleNode):
    """A class or function by name. ``parts`` holds the two name nodes of STACK_GLOBAL, None for GLOBAL."""

    __slots__ = ("module", "name", "op", "parts")

    def __init__(self, op: int, module: str, name: str, parts: list[Value] | None = None, memo: int = NO_MEMO) -> None:
        self.op = op
        self.module = module
        self.name = name
        self.parts = parts
        self.memo = memo

    @property
    def full(self) -> str:
        """``module.name``."""
        return f"{self.module}.{self.name}"


class Extension(PickleNode):
    """A copyreg extension code (EXT1, EXT2, EXT4): never resolved."""

    __slots__ = ("code", "op")

    def __init__(self, op: int, code: int, memo: int = NO_MEMO) -> None:
        self.op = op
        self.code = code
        self.memo = memo


class Tuple(PickleNode):
    """A tuple (EMPTY_TUPLE, TUPLE, TUPLE1–3) or a frozenset (FROZENSET); ``op`` tells which."""

    __slots__ = ("items", "op")

    def __init__(self, op: int, items: list[Value], memo: int = NO_MEMO) -> None:
        self.op = op
        self.items = items
        self.memo = memo


@noun(frozen=False)
class Mutation:
    """Something done to a container or object after it was made.

    ``op`` is APPEND, APPENDS, SETITEM, SETITEMS (payload: key, value, key, value …), ADDITEMS, BUILD (payload: the
    state), or a PUT that came later than right after the making (payload empty: the node's ``memo`` is stored here).
    ``late`` steps were not done where the object was made but where a Revisit fetched it from the memo again.
    """

    op: int
    payload: list[Value]
    late: bool = False


class Made(PickleNode):
    """Anything that steps can change after it was made: a list, dict, set, or the result of a call.

    ``op`` is EMPTY_LIST, LIST, EMPTY_DICT, DICT, EMPTY_SET (``items``: what was between MARK and LIST or DICT), or
    REDUCE, NEWOBJ, NEWOBJ_EX, OBJ, INST (``items``: callable and arguments; for REDUCE and NEWOBJ [callable, args],
    for NEWOBJ_EX [class, args, kwargs], for OBJ [class, arg …], for INST [Global, arg …]).
    ``folded`` holds a tensor's call in a small form; ``items`` are made of it when they are first asked for.
    """

    __slots__ = ("folded", "items", "op", "steps")

    def __init__(self, op: int, items: list[Value] | None = None, memo: int = NO_MEMO) -> None:
        self.op = op
        self.items: list[Value] = [] if items is None else items
        self.steps: list[Mutation] | None = None
        self.folded: FoldedTensor | None = None
        self.memo = memo

    def __getattr__(self, name: str) -> list[Value]:
        # Python comes here only for a slot that was never filled, so that reading costs nothing in all other cases
        if name != "items" or self.folded is None:
            raise AttributeError(name)
        self.items = self.folded.open()
        self.folded = None
        return self.items


class PersistentId(PickleNode):
    """A reference to something outside the pickle: ``id`` is the value (BINPERSID) or its text (PERSID).

    Protocol 5's out-of-band buffers are such references too: NEXT_BUFFER (``id`` None) and READONLY_BUFFER (``id``: the
    value that is made read-only).
    """

    __slots__ = ("id", "op")

    def __init__(self, op: int, id: Value, memo: int = NO_MEMO) -> None:
        self.op = op
        self.id = id
        self.memo = memo


class Popped(PickleNode):
    """Values that were computed and thrown away before ``result``: how a pickler writes recursive tuples and objects.

    ``op`` is POP (each value popped on its own), POP_MARK, or MARK (the values and then the mark popped one by one).
    """

    __slots__ = ("discarded", "op", "result")

    def __init__(self, op: int, discarded: list[Value], result: Value) -> None:
        self.op = op
        self.discarded = discarded
        self.result = result
        self.memo = NO_MEMO


class Revisit(Popped):
    """An object fetched from the memo to be changed further: ``steps`` are those of its ``late`` steps done here."""

    __slots__ = ("steps",)

    def __init__(self, op: int, result: Made, steps: list[Mutation]) -> None:
        super().__init__(op, [], result)
        self.steps = steps


Value = Union[None, bool, int, float, String, Constant, Global, Extension, Tuple, Made, PersistentId, Popped]


@noun
class GlobalUse:
    """The first place (byte offset in the stream) where a class or function is named.

    ``looks_up`` and ``refers`` are what ``GlobalName`` has.
    """

    module: str
    name: str
    offset: int
    looks_up: tuple[LookUp, ...] = ()
    refers: bool = False


@noun
class Ambiguity:
    """Something on which unpicklers disagree, or that a pickler never writes, with its byte offset."""

    kind: str
    message: str
    offset: int


@noun(frozen=False)
class Pickle:
    """One decoded pickle: its root, and all that is needed to write the same bytes again.

    ``start`` and ``end`` are the byte range in the data given to decode (``end`` is just past STOP).
    ``globals`` lists each distinct (module, name) once, in order of appearance, also those in discarded calls.
    ``frames`` holds (start, length) of each FRAME's contents, relative to ``start``.
    ``opcodes`` counts what was executed; ``discards`` says that some value was thrown away, and ``discards_calls`` that
    one was the result of a call; ``memoize`` that MEMOIZE numbers the memo; ``next_memo`` is the first memo index that
    is free for a new node. ``entries`` has read entries of state dicts at once, and knows where: whoever reads the same
    bytes may skip them.
    """

    root: Value
    protocol: int
    start: int
    end: int
    globals: list[GlobalUse]
    ambiguities: list[Ambiguity]
    frames: list[tuple[int, int]]
    opcodes: int
    discards: bool = False
    discards_calls: bool = False
    memoize: bool = False
    next_memo: int = 0
    entries: Entries | None = None


def plain(value: Value) -> Value:
    """Return the value itself, without the discarded values before it."""
    while isinstance(value, Popped):
        value = value.result
    return value


# ---- tensors, whose nodes are made when they are asked for


# callee and arguments of a folded call as nodes, and the nodes inside by their memo index
Unfold = Callable[["FoldedTensor"], "tuple[list[Value], dict[int, Value]]"]


class Form:
    """What many folded tensors of a pickle have in common: everything but their keys, devices' texts and memo indices.

    ``unfold`` makes nodes out of ``data``, the pickle. ``callee`` is what is called. ``tag``, ``kind``, ``place`` and
    ``hooks`` are values that the stream fetches from the memo by ``gets`` (``place`` is None where the location is
    written out); ``location`` is the device tag as text, None where the memo holds something else. ``shape`` and
    ``stride`` count elements, as do ``numel`` and ``offset``. ``opcodes`` are those that size and stride take.
    """

    __slots__ = (
        "callee", "data", "gets", "hooks", "kind", "location", "numel", "offset", "opcodes", "place", "requires_grad",
        "shape", "stride", "tag", "unfold",
    )  # fmt: skip

    def __init__(
        self,
        unfold: Unfold,
        data: bytes,
        callee: Value,
        gets: tuple[bytes, ...],
        fetched: tuple[Value, Value, Value, Value],
        location: str | None,
        numbers: tuple[int, int, tuple[int, ...], tuple[int, ...], bool],
        opcodes: int,
    ) -> None:
        self.unfold = unfold
        self.data = data
        self.callee = callee
        self.gets = gets
        self.tag, self.kind, self.place, self.hooks = fetched
        self.location = location
        self.numel, self.offset, self.shape, self.stride, self.requires_grad = numbers
        self.opcodes = opcodes

    @property
    def fetched(self) -> tuple[Value, Value, Value, Value]:
        """The values that it fetches from the memo."""
        return self.tag, self.kind, self.place, self.hooks


class FoldedTensor:
    """A call of ``torch._utils._rebuild_tensor_v2``, kept as its numbers until someone needs it as nodes.

    A tensor is ten nodes, and a checkpoint has up to hundreds of thousands of tensors; reading needs their numbers
    only. The nodes of the arguments are made of the bytes from ``at`` to ``end``: ('storage', class, key, location,
    numel) and the rest. ``first`` and ``last`` are the memo indices of the first and the last of its inner nodes.
    ``held`` are callee and arguments once they have been made: from then on they may be referred to, or changed, from
    elsewhere.
    """

    __slots__ = ("_inner", "at", "end", "first", "form", "held", "key", "last")
    form: Form
    key: str
    at: int
    end: int
    first: int
    last: int
    held: list[Value] | None
    _inner: dict[int, Value]

    def open(self) -> list[Value]:
        """Return the callee and arguments as nodes: the same ones each time."""
        if self.held is None:
            self.held, self._inner = self.form.unfold(self)
        return self.held

    def node(self, index: int) -> Value:
        """Return the inner node that the stream stores in its memo under ``index``."""
        self.open()
        return self._inner[index]


def folded_call(op: int, form: Form, key: str, at: int, end: int, first: int, memo: int) -> Made:
    """Return the call of a tensor whose items stay folded until they are asked for; ``memo`` is its own index.

    Both are filled here, one by one: there are as many as tensors, and calling what fills them takes longer than that.
    """
    folded = FoldedTensor()
    folded.form = form
    folded.key = key
    folded.at = at
    folded.end = end
    folded.first = first
    folded.last = memo - 1
    folded.held = None
    made: Made = Made.__new__(Made)
    made.op = op
    made.steps = None
    made.folded = folded
    made.memo = memo
    return made


# ---- every node once, in the order in which the stream makes them


def values_inside(node: PickleNode) -> list[Value]:
    """Return the values directly inside a node, in stream order, those that were discarded on the way included."""
    if isinstance(node, Made):
        found = list(node.items)
        for step in node.steps or ():
            if not step.late:
                found += step.payload
        return found
    if isinstance(node, Tuple):
        return node.items
    if isinstance(node, PersistentId):
        return [node.id]
    if isinstance(node, Popped):
        later = [step.payload for step in node.steps] if isinstance(node, Revisit) else []
        return [*node.discarded, node.result, *chain.from_iterable(later)]
    if isinstance(node, Global) and node.parts is not None:
        return node.parts
    return []


def values_inside_folded(node: PickleNode) -> list[Value]:
    """Return the same, but a folded tensor stays folded: inside it are the nodes that it shares with others."""
    if type(node) is not Made:
        return values_inside(node)
    folded = folded_in(node)
    if folded is None:
        return values_inside(node)
    found = [folded.form.callee, *folded.form.fetched]
    for step in node.steps or ():
        if not step.late:
            found += step.payload
    return found


def folded_in(node: Made) -> FoldedTensor | None:
    """Return the tensor that a node is as long as nobody has opened it, or None for one that fetches unusual things."""
    folded = node.folded
    if folded is None or folded.held is not None:
        return None
    form = folded.form
    if form.place is not None and type(form.place) is not String:
        return None
    usual = type(form.callee) is type(form.kind) is type(form.hooks) is Global and type(form.tag) is String
    return folded if usual else None


def nodes(root: Value, inside: Callable[[PickleNode], list[Value]] = values_inside) -> Iterator[PickleNode]:
    """Yield every node below ``root`` once, parents before children, in stream order; without recursion."""
    seen: set[int] = set()
    stack: list[Value] = [root]
    while stack:
        node = stack.pop()
        if not isinstance(node, PickleNode) or isinstance(node, Constant) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack.extend(reversed(inside(node)))


def storage_references(root: Value) -> Iterator[PersistentId]:
    """Yield every persistent id below ``root``, in the order in which the stream loads them."""
    for node in nodes(root):
        if type(node) is PersistentId:
            yield node


def folded_references(root: Value) -> Iterator[Union[PersistentId, FoldedTensor]]:
    """Yield the same, where a folded tensor stands for the reference in it and stays folded."""
    seen: set[int] = set()
    met: set[Form] = set()  # what many tensors share
    stack: list[Iterator[Value]] = [iter((root,))]
    while stack:
        for node in stack[-1]:
            if (
                type(node) is String
                or not isinstance(node, PickleNode)
                or isinstance(node, Constant)
                or id(node) in seen
            ):
                continue
            seen.add(id(node))
            if isinstance(node, PersistentId):
                yield node
            elif isinstance(node, Made):
                folded = folded_in(node)
                if folded is not None:
                    yield folded
                    if folded.form in met and not node.steps:
                        continue
                    met.add(folded.form)
            stack.append(iter(values_inside_folded(node)))
            break
        else:
            stack.pop()
