"""PUT, GET and MEMOIZE in all widths use the memo; POP, POP_MARK and DUP change the stack alone."""

from __future__ import annotations

from struct import unpack_from

from ckptdoctor.pickles import canonical
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import NO_MEMO, Constant, Made, Mutation, PickleNode, Popped, Value, plain
from ckptdoctor.pickles.machine import Handler, Machine, damaged
from ckptdoctor.regex import regex
from ckptdoctor.wording import plural

_INDEX = regex(rb"0|[1-9][0-9]{0,18}")
_ANY_INDEX = regex(rb"\s*\+?[0-9]+(?:_[0-9]+)*\s*")
_GETS = frozenset({op.GET, op.BINGET, op.LONG_BINGET})


def _put(m: Machine, index: int, offset: int) -> None:
    """Store the top of the stack under ``index``."""
    value = m.stack[-1]
    if isinstance(value, PickleNode):
        if isinstance(value, Popped):
            value = plain(value)
            assert isinstance(value, PickleNode)
        if value.memo == NO_MEMO:
            value.memo = index
            if type(value) is Made and value.steps is not None:
                value.steps.append(Mutation(op.PUT, []))
    else:
        assert value is None or isinstance(value, (bool, int, float))
        m.nodes += 1
        value = Constant(canonical.constant(value, m.protocol), value, index)
        m.stack[-1] = value
    _store(m, index, value, offset)


def _store(m: Machine, index: int, value: Value, offset: int) -> None:
    known = len(m.memo)
    if index == known and index not in m.sparse:
        m.memo.append(value)
        return
    before = m.entry(index) if index < known else m.sparse.get(index, value)
    if before is not value:
        m.ambiguous("memo-rebound", f"memo entry {index} is given another value", offset)
    if index < known:
        m.memo[index] = value
        m.forms.clear()
        m.patterns.clear()
        return
    if index > offset - m.start:
        m.ambiguous("memo-index", f"memo index {index} is larger than the pickle has bytes so far", offset)
    m.sparse[index] = value


def _binput(m: Machine, at: int) -> int:
    _put(m, m.data[at], at - 1)
    return at + 1


def _long_binput(m: Machine, at: int) -> int:
    _put(m, unpack_from("<I", m.data, at)[0], at - 1)
    return at + 4


def _memoize(m: Machine, at: int) -> int:
    m.memoize = True
    _put(m, len(m.memo) + len(m.sparse), at - 1)
    return at


def _text_put(m: Machine, at: int) -> int:
    if m.protocol < 0:
        m.protocol = 0
    index, end = _text_index(m, at)
    _put(m, index, at - 1)
    return end


def _text_index(m: Machine, at: int) -> tuple[int, int]:
    line, end = m.line(at, m.budgets.digits, at - 1)
    if _INDEX.fullmatch(line) is None:
        if _ANY_INDEX.fullmatch(line) is None or int(line) >> 63:
            raise damaged(
                at - 1, op.opcode_name(m.data[at - 1]), f"has the argument {line[:40]!r}, which is not a memo index"
            )
        m.ambiguous("numeral", f"a memo index is spelled {line[:40]!r}, which unpicklers read differently", at - 1)
    return int(line), end


def _fetch(m: Machine, index: int) -> Value:
    value = m.entry(index) if index < len(m.memo) else m.sparse[index]
    if type(value) is Made:
        m.borrow(value)
    return value


def _binget(m: Machine, at: int) -> int:
    m.stack.append(_fetch(m, m.data[at]))
    return at + 1


def _long_binget(m: Machine, at: int) -> int:
    m.stack.append(_fetch(m, unpack_from("<I", m.data, at)[0]))
    return at + 4


def _text_get(m: Machine, at: int) -> int:
    index, end = _text_index(m, at)
    m.stack.append(_fetch(m, index))
    return end


def _get(m: Machine, at: int) -> tuple[Value, int] | None:
    """Return the memo entry that a GET at ``at`` fetches, and where that GET ends, or None when there is none."""
    code = m.data[at] if at < m.size else op.STOP
    if code not in _GETS:
        return None
    if code == op.GET:
        index, end = _text_index(m, at + 1)
    else:
        layout, end = ("<B", at + 2) if code == op.BINGET else ("<I", at + 5)
        index = unpack_from(layout, m.data, at + 1)[0]
    return _fetch(m, index), end


def _pop(m: Machine, at: int) -> int:
    """Handle one or more POPs.

    They throw away for good, or, before a GET, are how a pickler writes what contains itself.

    They throw away for good, or, before a GET, are how a pickler writes what contains itself.
    """
    values: list[Value] = []
    code = op.POP
    while True:
        if m.stack:
            values.append(m.stack.pop())
        else:  # POP takes away a MARK, too
            m.stack = m.metastack.pop()
            code = op.MARK
        if code == op.MARK or m.data[at : at + 1] != b"0":
            break
        at += 1
        m.extra_opcodes += 1
    values.reverse()
    return _discard(m, code, values, at)


def _pop_mark(m: Machine, at: int) -> int:
    return _discard(m, op.POP_MARK, m.pop_mark(), at)


def _discard(m: Machine, code: int, values: list[Value], at: int) -> int:
    m.discarded = True
    fetched = _get(m, at)
    if fetched is None:
        m.ambiguous("discarded", f"{plural(len(values), 'value is', 'values are')} computed and discarded", at - 1)
        return at
    value, end = fetched
    m.nodes += 1
    m.extra_opcodes += 1
    m.stack.append(Popped(code, values, value))
    return end


def _dup(m: Machine, at: int) -> int:
    value = m.stack[-1]
    m.ambiguous("duplicated", "DUP, which no pickler writes, uses a value twice", at - 1)
    if isinstance(value, PickleNode):
        m.duplicated.append(plain(value))
    if type(value) is Made:
        m.borrow(value)
    m.stack.append(value)
    return at


HANDLERS: dict[int, Handler] = {
    op.PUT: _text_put,
    op.BINPUT: _binput,
    op.LONG_BINPUT: _long_binput,
    op.MEMOIZE: _memoize,
    op.GET: _text_get,
    op.BINGET: _binget,
    op.LONG_BINGET: _long_binget,
    op.POP: _pop,
    op.POP_MARK: _pop_mark,
    op.DUP: _dup,
}
