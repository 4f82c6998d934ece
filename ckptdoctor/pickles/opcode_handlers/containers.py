"""Marks, tuples, lists, dicts and sets are made, and steps fill them."""

from __future__ import annotations

from collections import Counter

from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.entries import EARLY, Entries, Pattern, Run
from ckptdoctor.pickles.graph import Form, Global, Made, Mutation, Popped, Revisit, String, Tuple, Value
from ckptdoctor.pickles.machine import Handler, Machine, damaged
from ckptdoctor.pickles.tensor_opcodes import count_tensors, form_of, get_index, put_tensor, take_tensor

# opcodes of an entry that the main loop does not see: key, PUT, GET of the function, and the MARK behind it
_ENTRY_OPCODES = 4

# bytes of an entry before the GET of its function, besides those of its key
_BEFORE_FUNCTION = 10


def _mark(m: Machine, at: int) -> int:
    if m.data.startswith(b"((", at - 1):
        end = take_tensor(m, at - 1)
        if end:
            return _take_entries(m, end) if len(m.memo) > EARLY else end
    m.metastack.append(m.stack)
    m.stack = []
    return at


def _take_entries(m: Machine, at: int) -> int:
    """Read entries of a state dict that follow a tensor, as long as each is as usual; where the next opcode is."""
    memo, stack, limit = m.memo, m.stack, m.limit
    if m.entries is None:
        m.entries = Entries(m.data)
    read, patterns = m.entries.read, m.patterns
    begin, first = at, len(memo)
    met: list[Pattern] = []
    while True:
        found = read(at, len(memo), limit)
        if found is None:
            break
        pattern, name, key, end = found
        form = patterns.get(pattern) or _usual(m, pattern)
        if form is None or not name.isascii() or name == b"storage":
            break
        text = String(op.BINUNICODE, str(name, "ascii"), len(memo))
        memo.append(text)
        stack.append(text)
        called = at + len(name) + _BEFORE_FUNCTION + len(pattern.function)
        stack.append(put_tensor(memo, form, key, called, end, pattern.count))
        met.append(pattern)
        at = end
    m.entries.runs[begin] = Run(first, at, met)
    for pattern, tensors in Counter(met).items():
        count_tensors(m, patterns[pattern], pattern.count, tensors)
        m.nodes += tensors
        m.extra_opcodes += _ENTRY_OPCODES * tensors
    return at


def _usual(m: Machine, pattern: Pattern) -> Form | None:
    """Return the form of tensors of this pattern; None where something else is fetched for it."""
    callee = get_index(pattern.function)
    function = m.memo[callee] if callee < len(m.memo) else None
    said = (pattern.numel, pattern.offset, pattern.size, pattern.stride, pattern.grad)
    if type(function) is not Global:
        return None
    form = form_of(m, function, (*said, pattern.where, pattern.place, pattern.tag, pattern.kind, pattern.hooks))
    if form is None:
        return None
    m.patterns[pattern] = form
    return form


def _tuple(m: Machine, at: int) -> int:
    items = m.stack
    m.stack = m.metastack.pop()
    m.nodes += 1
    m.stack.append(Tuple(op.TUPLE, items))
    return at


def _empty_tuple(m: Machine, at: int) -> int:
    m.nodes += 1
    m.stack.append(Tuple(op.EMPTY_TUPLE, []))
    return at


def _tuple1(m: Machine, at: int) -> int:
    m.nodes += 1
    stack = m.stack
    stack[-1] = Tuple(op.TUPLE1, [stack[-1]])
    return at


def _tuple2(m: Machine, at: int) -> int:
    m.nodes += 1
    second = m.stack.pop()
    m.stack[-1] = Tuple(op.TUPLE2, [m.stack[-1], second])
    return at


def _tuple3(m: Machine, at: int) -> int:
    m.nodes += 1
    third = m.stack.pop()
    second = m.stack.pop()
    m.stack[-1] = Tuple(op.TUPLE3, [m.stack[-1], second, third])
    return at


def _frozenset(m: Machine, at: int) -> int:
    m.nodes += 1
    items = m.pop_mark()
    m.stack.append(Tuple(op.FROZENSET, items))
    return at


def _empty(m: Machine, at: int) -> int:
    m.nodes += 1
    m.stack.append(Made(m.data[at - 1]))  # EMPTY_LIST, EMPTY_DICT or EMPTY_SET
    return at


def _list(m: Machine, at: int) -> int:
    if m.protocol < 0:
        m.protocol = 0
    m.nodes += 1
    items = m.pop_mark()
    m.stack.append(Made(op.LIST, items))
    return at


def _dict(m: Machine, at: int) -> int:
    if m.protocol < 0:
        m.protocol = 0
    m.nodes += 1
    items = m.pop_mark()
    if len(items) % 2:
        raise damaged(at - 1, "DICT", "has a key without a value")
    m.stack.append(Made(op.DICT, items))
    return at


def _append(m: Machine, at: int) -> int:
    value = m.stack.pop()
    record_step(m, op.APPEND, [value], at - 1)
    return at


def _appends(m: Machine, at: int) -> int:
    values = m.pop_mark()
    record_step(m, m.data[at - 1], values, at - 1)  # APPENDS or ADDITEMS
    return at


def _setitem(m: Machine, at: int) -> int:
    value = m.stack.pop()
    key = m.stack.pop()
    record_step(m, op.SETITEM, [key, value], at - 1)
    return at


def _setitems(m: Machine, at: int) -> int:
    values = m.pop_mark()
    if len(values) % 2:
        raise damaged(at - 1, "SETITEMS", "has a key without a value")
    record_step(m, op.SETITEMS, values, at - 1)
    return at


def _build(m: Machine, at: int) -> int:
    state = m.stack.pop()
    record_step(m, op.BUILD, [state], at - 1)
    return at


HANDLERS: dict[int, Handler] = {
    op.MARK: _mark,
    op.TUPLE: _tuple,
    op.EMPTY_TUPLE: _empty_tuple,
    op.TUPLE1: _tuple1,
    op.TUPLE2: _tuple2,
    op.TUPLE3: _tuple3,
    op.FROZENSET: _frozenset,
    op.EMPTY_LIST: _empty,
    op.EMPTY_DICT: _empty,
    op.EMPTY_SET: _empty,
    op.LIST: _list,
    op.DICT: _dict,
    op.APPEND: _append,
    op.APPENDS: _appends,
    op.ADDITEMS: _appends,
    op.SETITEM: _setitem,
    op.SETITEMS: _setitems,
    op.BUILD: _build,
}


def record_step(m: Machine, code: int, payload: list[Value], offset: int) -> None:
    """Record a step on the object on top of the stack. Raises LookupError when the stack is empty."""
    target = m.stack[-1]
    if type(target) is not Made or (m.borrowed and m.is_borrowed(target)):
        _step_elsewhere(m, Mutation(code, payload, late=True), offset)
    elif target.steps is None:
        target.steps = [Mutation(code, payload)]
    else:
        target.steps.append(Mutation(code, payload))


def _step_elsewhere(m: Machine, step: Mutation, offset: int) -> None:
    """Note a step on an object that was not made at this place of the stack.

    A pickler writes it after an object whose arguments lead back to itself: the object was finished within them, is
    fetched from the memo, and then receives its state.
    """
    top = m.stack[-1]
    holder: Popped | None = None
    while type(top) is Popped:
        holder, top = top, top.result
    if type(top) is Revisit:
        top.steps.append(step)
        target = top.result
    elif type(top) is Made:
        target, revisit = top, Revisit(op.POP, top, [step])
        if holder is None:
            m.stack[-1] = revisit
        else:
            holder.result = revisit
    else:
        m.discarded = True
        m.ambiguous("step-target", f"{op.opcode_name(step.op)} changes a value that the pickle did not make", offset)
        return
    assert isinstance(target, Made)  # a Revisit is only ever made of one
    if target.steps is None:
        target.steps = []
    target.steps.append(step)
