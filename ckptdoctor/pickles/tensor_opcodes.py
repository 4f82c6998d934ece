"""Reads the 30 opcodes that nearly every tensor of a ``torch.save`` pickle consists of in one step.

One regular expression recognises the arguments and the call of ``torch._utils._rebuild_tensor_v2`` as Python's pickler
writes them under protocol 2 (``entries.py``), and the same nodes are built that the single opcodes would have built.
Whatever looks different in any way is left to the single opcodes.
"""

from __future__ import annotations

from functools import lru_cache

from ckptdoctor.pickles import canonical
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.entries import TENSOR, puts_in_sequence
from ckptdoctor.pickles.graph import (
    FoldedTensor,
    Form,
    Made,
    PersistentId,
    PickleNode,
    String,
    Tuple,
    Value,
    folded_call,
)
from ckptdoctor.pickles.machine import Machine

# Opcodes of a match, less the PUTs and those of size and stride, and less the MARK that the main loop counts itself.
_OPCODES = 15
_NODES = 10


def take_tensor(m: Machine, at: int) -> int:
    """Read arguments and call of a tensor whose function is on the stack; 0 when the bytes are anything else."""
    match = TENSOR.match(m.data, at, m.limit)
    if match is None or m.sparse or m.protocol < 2 or not m.stack:
        return 0
    (tag, kind, key_size, key, key_put, where, place_size, place, place_put, numel, id_put, offset, size, size_put,
     stride, stride_put, grad, hooks, hooks_put, arguments_put, tensor_put) = match.groups(b"")  # fmt: skip
    puts = (key_put, place_put, id_put, size_put, stride_put, hooks_put, arguments_put, tensor_put)
    count = puts_in_sequence(puts, len(m.memo))
    if not count or key_size[0] != len(key) or (place and place_size[0] != len(place)):
        return 0
    form = form_of(m, m.stack[-1], (numel, offset, size, stride, grad, where, place, tag, kind, hooks))
    if form is None:
        return 0
    m.stack[-1] = put_tensor(m.memo, form, key, at, match.end(), count)
    count_tensors(m, form, count, 1)
    return match.end()


def put_tensor(memo: list[Value | FoldedTensor], form: Form, key: bytes, at: int, end: int, count: int) -> Made:
    """Return the call in these bytes, once it has its ``count`` memo entries."""
    index, inner = len(memo), count - 1
    tensor = folded_call(op.REDUCE, form, str(key, "ascii"), at, end, index, index + inner)
    memo += [tensor.folded] * inner
    memo.append(tensor)
    return tensor


def count_tensors(m: Machine, form: Form, count: int, tensors: int) -> None:
    """Count what the single opcodes would have counted for so many tensors, each with ``count`` memo entries."""
    m.nodes += _NODES * tensors
    m.calls += 2 * tensors
    m.extra_opcodes += (_OPCODES + count + form.opcodes) * tensors


def form_of(m: Machine, callee: Value, said: tuple[bytes, ...]) -> Form | None:
    """Return the form of a tensor of such a call that has these bytes in the stream, the same for all that are alike.

    They are its integers, size, stride and flag, and where its device tag and the rest are fetched from. None where a
    pickler would not write it so.
    """
    if not isinstance(callee, PickleNode):
        return None
    known = said, callee  # nodes are compared by identity
    form = m.forms.get(known)
    if form is None:
        form = _form(m, callee, said)
        if form is not None:
            m.forms[known] = form
    return form


def _form(m: Machine, callee: Value, said: tuple[bytes, ...]) -> Form | None:
    numel, offset, size, stride, grad, where, place, tag, kind, hooks = said
    memo = m.memo
    sizes, strides, count, start = _shape(size), _shape(stride), _number(numel), _number(offset)
    if (
        max(get_index(tag), get_index(kind), get_index(hooks), get_index(where)) >= len(memo)
        or sizes is None
        or strides is None
        or count is None
        or start is None
    ):
        return None
    device = _entry(memo, get_index(where))
    fetched = _entry(memo, get_index(tag)), _entry(memo, get_index(kind)), device, _entry(memo, get_index(hooks))
    location = _place(place) if not where else _device(device)
    numbers = count, start, sizes[3], strides[3], grad == b"\x88"
    return Form(unfolded, m.data, callee, (tag, kind, where, hooks), fetched, location, numbers, sizes[2] + strides[2])


def _device(node: Value) -> str | None:
    """Return the text of a device tag that was fetched from the memo, or None for anything else."""
    return node.value if type(node) is String and type(node.value) is str else None


def _entry(memo: list[Value | FoldedTensor], index: int) -> Value:
    """Return what the memo holds at ``index``, or None for -1, which stands for no GET."""
    if index < 0:
        return None  # no GET stands there
    value = memo[index]
    return value.node(index) if isinstance(value, FoldedTensor) else value


def unfolded(folded: FoldedTensor) -> tuple[list[Value], dict[int, Value]]:
    """Return the nodes that the single opcodes would have built.

    They are callee and arguments, and those inside by memo index.
    """
    match = TENSOR.match(folded.form.data, folded.at)
    assert match is not None
    form = folded.form
    (_, _, _, _, _, where, _, place, _, _, _, _, size, size_put,
     stride, stride_put, grad, _, _, _, _) = match.groups(b"")  # fmt: skip
    inner: dict[int, Value] = {}
    index = folded.first

    def kept(node: String | Tuple | Made) -> None:
        nonlocal index
        node.memo = index
        inner[index] = node
        index += 1

    name = String(op.BINUNICODE, folded.key)
    kept(name)
    location: Value = form.place
    if not where:
        location = String(op.BINUNICODE, _place(place))
        kept(location)
    identity = Tuple(op.TUPLE, [form.tag, form.kind, name, location, form.numel])
    kept(identity)
    sizes, strides = _shape(size), _shape(stride)
    assert sizes is not None
    assert strides is not None
    size_node, stride_node = Tuple(sizes[0], sizes[1].copy()), Tuple(strides[0], strides[1].copy())
    for node, put in ((size_node, size_put), (stride_node, stride_put)):
        if put:
            kept(node)
    hooks_node = Made(op.REDUCE, [form.hooks, Tuple(op.EMPTY_TUPLE, [])])
    kept(hooks_node)
    storage = PersistentId(op.BINPERSID, identity)
    values: list[Value] = [storage, form.offset, size_node, stride_node, grad == b"\x88", hooks_node]
    arguments = Tuple(op.TUPLE, values)
    kept(arguments)
    return [form.callee, arguments], inner


def fits(form: Form, protocol: int) -> bool:
    """Return whether the bytes of tensors of this form still say what they said, unless one of their nodes was made.

    They do as long as the values that they fetch have kept their memo indices.
    """
    both = zip(form.gets, form.fetched, strict=True)
    return all(
        not get or (isinstance(node, PickleNode) and canonical.get(node.memo, protocol) == get) for get, node in both
    )


@lru_cache(maxsize=256)
def _place(raw: bytes) -> str:
    """Return a device tag; one string object for all that say the same."""
    return str(raw, "ascii")


@lru_cache(maxsize=1024)
def get_index(get: bytes) -> int:
    """Return the memo index of a BINGET or LONG_BINGET; nothing stands for -1."""
    return int.from_bytes(get[1:], "little") if get else -1


@lru_cache(maxsize=4096)
def _number(raw: bytes) -> int | None:
    """Return the integer that a BININT of any width writes.

    It is None when Python's pickler would write it in fewer bytes.
    """
    value = int.from_bytes(raw[1:], "little", signed=raw[0] == op.BININT)
    return value if canonical.integer_bytes(value, 2) == raw else None


@lru_cache(maxsize=4096)
def _shape(raw: bytes) -> tuple[int, list[Value], int, tuple[int, ...]] | None:
    """Return the opcode, items, number of opcodes, and integers of a tuple, or None when no pickler writes it so."""
    code = raw[-1]
    begin = 1 if code == op.TUPLE and raw[0] == op.MARK else 0
    values: list[int] = []
    while begin < len(raw) - 1:
        end = begin + 1 + op.ARGUMENT_SIZE[raw[begin]]
        value = _number(raw[begin:end])
        if value is None:
            return None
        values.append(value)
        begin = end
    if code == op.EMPTY_TUPLE:
        return code, [], 1, ()
    if code == op.TUPLE:
        return code, [*values], len(values) + 2, tuple(values)
    return (code, [*values], len(values) + 1, tuple(values)) if len(values) == code - op.TUPLE1 + 1 else None
