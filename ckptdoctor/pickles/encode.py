"""Write a graph as a pickle again: byte for byte the one it was decoded from, as long as nothing was edited.

After an edit the first use of a value that several places share defines it, wherever the graph has that use now, and
the others fetch it from the memo.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate
from struct import Struct, pack
from typing import Any, Union

from ckptdoctor.errors import UnprovenError
from ckptdoctor.pickles import canonical
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import (
    NO_MEMO,
    Constant,
    Extension,
    Form,
    Global,
    Made,
    Mutation,
    PersistentId,
    Pickle,
    PickleNode,
    Popped,
    Revisit,
    String,
    Tuple,
    Value,
    Verbatim,
)
from ckptdoctor.pickles.tensor_opcodes import fits

_ONE = tuple(bytes((code,)) for code in range(256))
_MARK = _ONE[op.MARK]
_AFTER_MARK = frozenset(
    {op.TUPLE, op.FROZENSET, op.LIST, op.DICT, op.OBJ, op.INST, op.APPENDS, op.SETITEMS, op.ADDITEMS}
)
_SHORT_TUPLES = (op.EMPTY_TUPLE, op.TUPLE1, op.TUPLE2, op.TUPLE3)
_WORD = Struct("<I").pack
_EXTENSIONS = {op.EXT1: "<BB", op.EXT2: "<BH", op.EXT4: "<Bi"}


class _Finish:
    """The rest of a node, to be written once its parts are."""

    __slots__ = ("node",)

    def __init__(self, node: Global | Tuple | Made | PersistentId) -> None:
        self.node = node


class _Whole:
    """The arguments and the call of a tensor as they were in the stream, to be written after its callee."""

    __slots__ = ("node", "raw")

    def __init__(self, node: Made, raw: bytes) -> None:
        self.node = node
        self.raw = raw


class _Put:
    """A PUT that comes later than right after the making."""

    __slots__ = ("node",)

    def __init__(self, node: Made) -> None:
        self.node = node


class _Pairs:
    """Keys and values of a dict, from the place ``at`` on."""

    __slots__ = ("at", "values")

    def __init__(self, values: list[Value], at: int) -> None:
        self.values = values
        self.at = at


_Task = Union[Value, bytes, Mutation, _Finish, _Put, _Whole, _Pairs]


class _Writer:
    """What was written so far, what is still to be written (last first), and which nodes the memo holds."""

    def __init__(self, pickle: Pickle) -> None:
        self.protocol = pickle.protocol
        self.memoize = pickle.memoize
        self.framed = bool(pickle.frames)
        self.out: list[bytes] = []
        self.tasks: list[_Task] = [b".", pickle.root]
        self.indices: dict[PickleNode, int] = {}  # of MEMOIZE; nodes are compared by identity
        self._owners: dict[int, PickleNode] = {}  # of PUT, but those of ``_runs``
        # keys and tensors of dicts, from one place to another, whose memo indices count up: those of the last are the
        # highest of all; and the first index of each
        self._runs: list[tuple[list[Value], int, int]] = []
        self._firsts: list[int] = []
        self.highest = -1
        self.lost: set[PickleNode] = set()  # whose index another node was given
        self._fitting: dict[Form, bool] = {}  # forms are compared by identity
        self._stored: set[Form] = set()  # whose values can all be fetched now

    def later(self, tasks: Iterable[_Task]) -> None:
        """Write these next, the last one first."""
        self.tasks.extend(tasks)

    def put(self, node: PickleNode) -> None:
        """Store the node that was just written in the memo, if it has a place there."""
        memo = node.memo
        if memo == NO_MEMO:
            return
        if self.memoize:
            self.indices[node] = len(self.indices)
            self.out.append(b"\x94")
            return
        self.own(memo, node)
        self.out.append(canonical.put(memo, self.protocol))

    def own(self, memo: int, node: PickleNode) -> None:
        """Note that the memo holds the node under this index from now on."""
        if memo > self.highest:
            self.highest = memo
        else:
            before = self.owner(memo)
            if before is not None:
                self.lost.add(before)
                self._stored.clear()
        self._owners[memo] = node

    def own_run(self, values: list[Value], begin: int, end: int, first: int, last: int) -> None:
        """Note the same of these, whose indices count up from ``first`` to ``last``, and are higher than all before."""
        self._runs.append((values, begin, end))
        self._firsts.append(first)
        self.highest = last

    def owner(self, memo: int) -> PickleNode | None:
        """Return what the memo holds under an index."""
        found = self._owners.get(memo)
        if found is not None or not self._runs or memo > self.highest:
            return found
        values, begin, end = self._runs[max(0, bisect_right(self._firsts, memo) - 1)]
        place = bisect_left(values, memo, begin, end, key=_memo_of)
        node = values[place] if place < end else None
        return node if isinstance(node, PickleNode) and node.memo == memo else None

    def stored(self, value: Value) -> bool:
        """Return whether a GET of the value's memo index would fetch it now; None stands for no value."""
        return value is None or (isinstance(value, PickleNode) and self.owner(value.memo) is value)

    def keeps(self, form: Form) -> bool:
        """Return whether arguments and call of tensors of this form are as they are in the stream."""
        if form not in self._stored:
            if form not in self._fitting:
                self._fitting[form] = fits(form, self.protocol)
            if not self._fitting[form] or not all(map(self.stored, form.fetched)):
                return False
            self._stored.add(form)
        return True

    def index(self, node: PickleNode) -> int:
        """Return where in the memo the node is, NO_MEMO before it was written.

        Raises UnprovenError when another node has taken its place there.
        """
        if self.memoize:
            return self.indices.get(node, NO_MEMO)
        memo = node.memo
        if memo == NO_MEMO or self.owner(memo) is node:
            return memo
        if node in self.lost:
            raise UnprovenError(
                f"the pickle uses memo entry {memo} for two values, so it cannot be written again without a guess; "
                "convert the file by extracting its tensors instead"
            )
        return NO_MEMO

    def fetched(self, node: PickleNode) -> bool:
        """Fetch the node from the memo if it was written before; says whether it was."""
        index = self.index(node)
        if index == NO_MEMO:
            return False
        self.out.append(canonical.get(index, self.protocol))
        return True


def encode(pickle: Pickle) -> bytes:
    """Return the bytes of the pickle, from its first opcode to STOP.

    Frames are kept, or made again where an edit moved them.

    Raises UnprovenError when a memo entry that was given to two values would be needed for both at once.
    """
    return framed(_instructions(pickle), pickle.frames)


def _instructions(pickle: Pickle) -> list[bytes]:
    """Return the stream without its frames, in pieces that end where an instruction ends."""
    writer = _Writer(pickle)
    if pickle.protocol >= 2:
        writer.out.append(bytes((op.PROTO, pickle.protocol)))
    tasks, out, protocol = writer.tasks, writer.out, pickle.protocol
    while tasks:
        task = tasks.pop()
        write = _WRITERS.get(type(task))
        if write is not None:
            write(writer, task)
        elif isinstance(task, bytes):
            out.append(task)
        else:
            assert task is None or isinstance(task, (bool, int, float))
            out.append(canonical.constant(task, protocol))
    return out


def prove(data: bytes, pickle: Pickle) -> None:
    """Raise UnprovenError unless encoding the pickle gives exactly the bytes it was decoded from."""
    at, end = pickle.start, pickle.end
    pieces = [encode(pickle)] if pickle.frames else _instructions(pickle)
    for piece in pieces:
        if not data.startswith(piece, at, end):
            both = enumerate(zip(piece, data[at:end], strict=False))
            at += next((same for same, (one, other) in both if one != other), min(len(piece), end - at))
            break
        at += len(piece)
    else:
        if at == end:
            return
    raise UnprovenError(
        f"the pickle cannot be written again byte for byte (the first difference is at byte {at}), so a "
        "lossless repair cannot be promised; convert the file by extracting its tensors instead",
        offset=at,
    )


def _text(w: _Writer, node: String) -> None:
    if not w.fetched(node):
        w.out.append(canonical.text_bytes(node.op, node.value))
        w.put(node)


def _raw(w: _Writer, node: Verbatim | Constant) -> None:
    if not w.fetched(node):
        w.out.append(node.raw)
        w.put(node)


def _global(w: _Writer, node: Global) -> None:
    if w.fetched(node):
        return
    if node.parts is None:
        w.out.append(_lines(op.GLOBAL, node))
        w.put(node)
    else:
        w.later((_Finish(node), *reversed(node.parts)))


def _lines(code: int, node: Global) -> bytes:
    return b"%c%s\n%s\n" % (code, node.module.encode(), node.name.encode())


def _extension(w: _Writer, node: Extension) -> None:
    if not w.fetched(node):
        w.out.append(pack(_EXTENSIONS[node.op], node.op, node.code))
        w.put(node)


def _tuple(w: _Writer, node: Tuple) -> None:
    if w.fetched(node):
        return
    if _tuple_op(w, node) in _AFTER_MARK:
        w.out.append(_MARK)
    w.tasks.append(_Finish(node))
    w.tasks.extend(reversed(node.items))


def _tuple_op(w: _Writer, node: Tuple) -> int:
    """Return the opcode of the tuple; another than before when an edit changed its length."""
    if node.op in (op.TUPLE, op.FROZENSET) or node.op == _SHORT_TUPLES[min(len(node.items), 3)]:
        return node.op if len(node.items) <= 3 or node.op in _AFTER_MARK else op.TUPLE
    return _SHORT_TUPLES[len(node.items)] if len(node.items) <= 3 and w.protocol >= 2 else op.TUPLE


def _made(w: _Writer, node: Made) -> None:
    if w.fetched(node):
        return
    folded = node.folded
    if folded is not None and not node.steps and node.memo == folded.last + 1:
        form = folded.form
        if folded.held is None and w.keeps(form):
            w.tasks.append(_Whole(node, form.data[folded.at : folded.end]))
            w.tasks.append(form.callee)
            return
    for step in reversed(node.steps or ()):
        if step.op == op.PUT:
            w.tasks.append(_Put(node))
        elif not step.late:
            w.tasks.append(step)
    if node.op in _AFTER_MARK:
        w.out.append(_MARK)
    w.tasks.append(_Finish(node))
    w.tasks.extend(reversed(node.items[1:] if node.op == op.INST else node.items))


def _step(w: _Writer, step: Mutation) -> None:
    if step.op in _AFTER_MARK:
        w.out.append(_MARK)
    w.tasks.append(_ONE[step.op])
    if step.op == op.SETITEMS:
        w.tasks.append(_Pairs(step.payload, 0))
    else:
        w.tasks.extend(reversed(step.payload))


def _pairs(w: _Writer, task: _Pairs) -> None:
    """Write the entries of a dict: tensors that are unchanged in the stream all at once, others one by one."""
    at = task.at if w.framed or w.memoize else _tensors(w, task.values, task.at)
    if at < len(task.values):
        if at + 2 < len(task.values):
            w.tasks.append(_Pairs(task.values, at + 2))
        w.tasks.extend(reversed(task.values[at : at + 2]))


def _tensors(w: _Writer, values: list[Value], at: int) -> int:
    """Write keys with their tensors as long as each is as usual; the place of the first that is not."""
    gets: dict[Form, bytes] = {}  # of those of which a tensor was kept: what they need in the memo is still there
    pieces: list[bytes] = []  # joined here, before there are so many that the processor's cache cannot hold them
    end = at + (len(values) - at) // 2 * 2
    before = w.highest
    first = -1
    for place in range(at, end, 2):
        key, value = values[place], values[place + 1]
        if type(key) is not String or key.op != op.BINUNICODE or type(value) is not Made or value.steps:
            break
        folded, name, memo = value.folded, key.memo, value.memo
        if folded is None or folded.held is not None or memo != folded.last + 1:
            break
        if name <= before or name <= 0xFF or memo <= name:
            break
        form = folded.form
        get = gets.get(form)
        if get is None:
            get = _usual_get(w, form)
            if get is None:
                break
            gets[form] = get
        text = key.value.encode("utf-8", "surrogatepass")  # type: ignore[union-attr]  # the opcode says that it is text
        pieces.append(b"X%b%br%b%b%b" % (_WORD(len(text)), text, _WORD(name), get, form.data[folded.at : folded.end]))
        before = memo
        if first < 0:
            first = name
    else:
        place = end
    if pieces:
        w.own_run(values, at, place, first, before)
        w.out.append(b"".join(pieces))
    return place


def _usual_get(w: _Writer, form: Form) -> bytes | None:
    """Return what fetches the function that tensors of this form call.

    It is None where their bytes in the stream no longer fit.
    """
    function = form.callee
    if not isinstance(function, PickleNode) or w.owner(function.memo) is not function or not w.keeps(form):
        return None
    return canonical.get(function.memo, w.protocol)


def _memo_of(value: Any) -> int:
    memo: int = value.memo
    return memo


def _persistent(w: _Writer, node: PersistentId) -> None:
    if w.fetched(node):
        return
    w.tasks.append(_Finish(node))
    if node.op != op.NEXT_BUFFER:
        w.tasks.append(node.id)


def _popped(w: _Writer, node: Popped) -> None:
    count = len(node.discarded)
    if node.op == op.POP:
        pops = b"0" * count
    else:
        w.out.append(_MARK)
        pops = b"1" if node.op == op.POP_MARK else b"0" * (count + 1)
    w.later((node.result, pops))
    w.later(reversed(node.discarded))


def _revisit(w: _Writer, node: Revisit) -> None:
    w.later(reversed(node.steps))
    w.later((node.result,))


def _whole(w: _Writer, task: _Whole) -> None:
    w.out.append(task.raw)
    w.own(task.node.memo, task.node)


def _put(w: _Writer, task: _Put) -> None:
    w.put(task.node)


def _finish(w: _Writer, task: _Finish) -> None:
    """Write the opcode that makes the node of its parts, and its place in the memo."""
    node = task.node
    if isinstance(node, (Tuple, Made)) and w.index(node) != NO_MEMO:
        _unmake(w, node)
        return
    if isinstance(node, Tuple):
        w.out.append(_ONE[_tuple_op(w, node)])
    elif isinstance(node, PersistentId) and node.op == op.PERSID:
        pass  # its id is the whole instruction
    elif isinstance(node, Made) and node.op == op.INST:
        assert isinstance(node.items[0], Global)
        w.out.append(_lines(op.INST, node.items[0]))
    else:
        w.out.append(_ONE[node.op])
    if not (isinstance(node, Made) and any(step.op == op.PUT for step in node.steps or ())):
        w.put(node)


def _unmake(w: _Writer, node: Tuple | Made) -> None:
    """The parts led back to the node and made it already: drop them and fetch it, as a pickler does."""
    code = _tuple_op(w, node) if isinstance(node, Tuple) else node.op
    if code in _AFTER_MARK:
        w.out.append(b"1" if w.protocol >= 1 else b"0" * (len(node.items) + 1))
    else:
        w.out.append(b"0" * len(node.items))
    w.fetched(node)


_WRITERS: dict[type, Callable[[_Writer, Any], None]] = {
    String: _text,
    Verbatim: _raw,
    Constant: _raw,
    Global: _global,
    Extension: _extension,
    Tuple: _tuple,
    Made: _made,
    PersistentId: _persistent,
    Popped: _popped,
    Revisit: _revisit,
    Mutation: _step,
    _Finish: _finish,
    _Put: _put,
    _Whole: _whole,
    _Pairs: _pairs,
}


# ---- frames of protocol 4 and 5


# A pickler closes a frame once it holds this many bytes, and writes anything of this size outside of frames.
_TARGET = 64 * 1024

# A frame of fewer bytes is not worth its header (``pickle._Framer._FRAME_SIZE_MIN``).
_SMALLEST = 4

_HEADER = 9


def framed(chunks: list[bytes], frames: list[tuple[int, int]]) -> bytes:
    """Return the instructions in ``chunks`` as one stream, with frames if it had ``frames`` (start, length) before."""
    if not frames:
        return b"".join(chunks)
    return _as_before(chunks, frames) or _anew(chunks)


def _as_before(chunks: list[bytes], frames: list[tuple[int, int]]) -> bytes | None:
    """Return the stream with the same frames, or None when one would begin or end within an instruction."""
    boundaries = set(accumulate(map(len, chunks)))
    body = b"".join(chunks)
    out: list[bytes] = []
    done = 0
    for number, (start, length) in enumerate(frames, 1):
        begin = start - number * _HEADER
        if begin < done or begin not in boundaries or begin + length not in boundaries:
            return None
        out += body[done:begin], b"\x95", pack("<Q", length), body[begin : begin + length]
        done = begin + length
    return b"".join([*out, body[done:]])


def _anew(chunks: list[bytes]) -> bytes:
    """Return the stream in frames of about 64 KiB; the first instruction is PROTO and precedes them."""
    out = chunks[:1]
    frame: list[bytes] = []
    size = 0
    for chunk in chunks[1:]:
        if len(chunk) >= _TARGET:
            out += [*_closed(frame, size), chunk]
            frame, size = [], 0
            continue
        frame.append(chunk)
        size += len(chunk)
        if size >= _TARGET:
            out += _closed(frame, size)
            frame, size = [], 0
    return b"".join(out + _closed(frame, size))


def _closed(frame: list[bytes], size: int) -> list[bytes]:
    return frame if size < _SMALLEST else [b"\x95" + pack("<Q", size), *frame]
