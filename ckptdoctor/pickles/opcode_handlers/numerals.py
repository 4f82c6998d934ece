"""INT, LONG and FLOAT: numbers written as text, on whose odd spellings unpicklers disagree.

What is accepted is what CPython's C unpickler accepts (``load_int``, ``load_long`` and ``load_float`` in
``Modules/_pickle.c``): INT goes through ``strtol`` with base 0, and a line of two characters worth 0 or 1 is a boolean.
"""

from __future__ import annotations

import re
from math import isinf

from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.machine import Handler, Machine, damaged
from ckptdoctor.pickles.opcode_handlers.numbers import push_constant
from ckptdoctor.regex import regex

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
    """What a C function sees of the line."""
    return line.partition(b"\0")[0]


def _strtol(text: bytes) -> int | None:
    """What C's ``strtol`` makes of the text with base 0, or None where it would not take all of it or overflow."""
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


HANDLERS: dict[int, Handler] = {op.INT: _int, op.LONG: _long, op.FLOAT: _float}
