"""None, booleans, integers and floats are read, in binary and as text.

A constant written as Python's pickler writes it becomes the plain value, any other a Constant that keeps its bytes.
"""

from __future__ import annotations

import re
from math import isinf
from struct import unpack_from

from ckptdoctor.pickles import canonical
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Constant
from ckptdoctor.pickles.machine import Handler, Machine, damaged, exceeded
from ckptdoctor.regex import regex
from ckptdoctor.wording import plural


def push_constant(m: Machine, value: bool | int | float | None, begin: int, end: int) -> int:
    """Push a constant written in the bytes ``begin`` to ``end``; returns ``end``."""
    raw = m.data[begin:end]
    if canonical.constant(value, m.protocol) == raw:
        m.stack.append(value)
    else:
        m.nodes += 1
        m.stack.append(Constant(raw, value))
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


# ---- numbers written as text, on whose odd spellings unpicklers disagree
#
# What is accepted is what CPython's C unpickler accepts (``load_int``, ``load_long`` and ``load_float`` in
# ``Modules/_pickle.c``): INT goes through ``strtol`` with base 0, and a line of two characters worth 0 or 1 is a
# boolean.


_DECIMAL = regex(rb"0|-?[1-9][0-9]*")
_STRTOL = regex(rb"[ \t\n\v\f\r]*([+-]?)(?:0[xX]([0-9a-fA-F]+)|0([0-7]*)|([1-9][0-9]*))")
_FLOAT = regex(rb"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE)
_LARGEST_LONG = 1 << 63


def _text_protocol(m: Machine) -> None:
    if m.protocol < 0:
        m.protocol = 0


def _int(m: Machine, at: int) -> int:
    line, end = m.line(at, m.budgets.digits, at - 1)
    if line in (b"00", b"01"):
        m.protocol, known = max(m.protocol, 0), m.protocol
        push_constant(m, line == b"01", at - 1, end)
        m.protocol = known  # protocol 1 writes booleans like this too
        return end
    _text_protocol(m)
    if _DECIMAL.fullmatch(line):
        return push_constant(m, int(line), at - 1, end)
    m.ambiguous("numeral", f"INT is spelled {line[:40]!r}, which unpicklers read differently", at - 1)
    text = _until_nul(line)
    value = 0 if line and not text else _strtol(text)
    if value is None:
        value = _any_base(text, at - 1, "INT")
    elif len(line) == 2 and value in (0, 1):
        return push_constant(m, bool(value), at - 1, end)
    return push_constant(m, value, at - 1, end)


def _until_nul(line: bytes) -> bytes:
    """Return what a C function sees of the line."""
    return line.partition(b"\0")[0]


def _strtol(text: bytes) -> int | None:
    """Return what C's ``strtol`` makes of the text with base 0.

    It is None where it would not take all of it or overflow.
    """
    match = _STRTOL.fullmatch(text)
    if match is None:
        return None
    sign, hexadecimal, octal, decimal = match.groups()
    if hexadecimal:
        value = int(hexadecimal, 16)
    elif decimal:
        value = int(decimal)
    else:
        value = int(octal or b"0", 8)
    value = -value if sign == b"-" else value
    return value if -_LARGEST_LONG <= value < _LARGEST_LONG else None


def _any_base(text: bytes, offset: int, code: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise damaged(offset, code, f"has the argument {text[:40]!r}, which is not an integer") from None


def _long(m: Machine, at: int) -> int:
    line, end = m.line(at, m.budgets.digits, at - 1)
    digits = line[:-1] if line.endswith(b"L") else line
    if _DECIMAL.fullmatch(digits):
        value = int(digits)
    else:
        value = _any_base(_until_nul(digits), at - 1, "LONG")
        m.ambiguous("numeral", f"LONG is spelled {line[:40]!r}, which unpicklers read differently", at - 1)
    m.protocol, known = max(m.protocol, 0), m.protocol
    push_constant(m, value, at - 1, end)
    m.protocol = known  # protocols 0 and 1 both write large integers like this
    return end


def _float(m: Machine, at: int) -> int:
    line, end = m.line(at, m.budgets.digits, at - 1)
    _text_protocol(m)
    text = _until_nul(line)
    if len(text) != len(line):
        m.ambiguous("numeral", f"FLOAT is spelled {line[:40]!r}, which unpicklers read differently", at - 1)
    if _FLOAT.fullmatch(text) is None:
        raise damaged(at - 1, "FLOAT", f"has the argument {line[:40]!r}, which is not a number")
    value = float(text)
    if isinf(value) and b"n" not in text.lower():
        m.ambiguous(
            "numeral", f"FLOAT is {line[:40]!r}, which is an error to some unpicklers and inf to others", at - 1
        )
    return push_constant(m, value, at - 1, end)


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
    op.INT: _int,
    op.LONG: _long,
    op.FLOAT: _float,
}
