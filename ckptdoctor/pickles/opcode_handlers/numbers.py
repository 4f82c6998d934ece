"""None, booleans, and integers and floats in binary.

A constant written as Python's pickler writes it becomes the plain value, any other a Literal that keeps its bytes.
"""

from __future__ import annotations

from struct import unpack_from

from ckptdoctor.pickles import canonical
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.budgets import exceeded
from ckptdoctor.pickles.graph import Literal
from ckptdoctor.pickles.machine import Handler, Machine, damaged
from ckptdoctor.wording import plural


def push_constant(m: Machine, value: bool | int | float | None, begin: int, end: int) -> int:
    """Push a constant written in the bytes ``begin`` to ``end``; returns ``end``."""
    raw = m.data[begin:end]
    if canonical.constant(value, m.protocol) == raw:
        m.stack.append(value)
    else:
        m.nodes += 1
        m.stack.append(Literal(raw, value))
    return end


def _binary(m: Machine, value: int | float, begin: int, end: int) -> int:
    """Push a number whose opcode shows, when no PROTO did, that this is not protocol 0."""
    if m.protocol < 0:
        m.protocol = 1
    return push_constant(m, value, begin, end)


def _none(m: Machine, at: int) -> int:
    m.stack.append(None)
    return at


def _true(m: Machine, at: int) -> int:
    if m.protocol < 2:
        return _binary(m, True, at - 1, at)
    m.stack.append(True)
    return at


def _false(m: Machine, at: int) -> int:
    if m.protocol < 2:
        return _binary(m, False, at - 1, at)
    m.stack.append(False)
    return at


def _binint1(m: Machine, at: int) -> int:
    if m.protocol < 1:
        return _binary(m, m.data[at], at - 1, at + 1)
    m.stack.append(m.data[at])
    return at + 1


def _binint2(m: Machine, at: int) -> int:
    value: int = unpack_from("<H", m.data, at)[0]
    return _binary(m, value, at - 1, at + 2)


def _binint(m: Machine, at: int) -> int:
    value: int = unpack_from("<i", m.data, at)[0]
    return _binary(m, value, at - 1, at + 4)


def _binfloat(m: Machine, at: int) -> int:
    value: float = unpack_from(">d", m.data, at)[0]
    if value != value or m.protocol < 1:  # the bits of a NaN may differ from those that Python would write
        return _binary(m, value, at - 1, at + 8)
    m.stack.append(value)
    return at + 8


def _long1(m: Machine, at: int) -> int:
    end = m.need(m.data[at], at + 1, "an integer")
    return _binary(m, int.from_bytes(m.data[at + 1 : end], "little", signed=True), at - 1, end)


def _long4(m: Machine, at: int) -> int:
    count: int = unpack_from("<i", m.data, at)[0]
    if count < 0:
        raise damaged(at - 1, "LONG4", f"announces an integer of {plural(count, 'byte')}")
    end = m.need(count, at + 4, "an integer")
    if count > m.budgets.integer_bytes:
        raise exceeded("integer_bytes", m.budgets.integer_bytes, at - 1)
    return _binary(m, int.from_bytes(m.data[at + 4 : end], "little", signed=True), at - 1, end)


HANDLERS: dict[int, Handler] = {
    op.NONE: _none,
    op.NEWTRUE: _true,
    op.NEWFALSE: _false,
    op.BININT1: _binint1,
    op.BININT2: _binint2,
    op.BININT: _binint,
    op.BINFLOAT: _binfloat,
    op.LONG1: _long1,
    op.LONG4: _long4,
}
