"""Text, bytes, byte arrays and the strings of Python 2 are read, under each of their opcodes."""

from __future__ import annotations

import re
from codecs import raw_unicode_escape_decode  # by name, because looking the codec up would import a module

from ckptdoctor.pickles import canonical
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import String, Verbatim
from ckptdoctor.pickles.machine import Handler, Machine, damaged
from ckptdoctor.regex import regex

_ESCAPE = regex(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{2})|(.)|\Z)", re.DOTALL)
_ESCAPED = {
    b"\\": b"\\",
    b"'": b"'",
    b'"': b'"',
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}


def _binunicode(m: Machine, at: int) -> int:
    begin = at + 4
    end = begin + int.from_bytes(m.data[at:begin], "little")
    if end > m.size:
        m.need(end - begin, begin, "a text")
    m.nodes += 1
    m.stack.append(String(op.BINUNICODE, str(m.data[begin:end], "utf-8", "surrogatepass")))
    return end


def _short_binunicode(m: Machine, at: int) -> int:
    begin = at + 1
    end = begin + m.data[at]
    if end > m.size:
        m.need(end - begin, begin, "a text")
    m.nodes += 1
    m.stack.append(String(op.SHORT_BINUNICODE, str(m.data[begin:end], "utf-8", "surrogatepass")))
    return end


def _binunicode8(m: Machine, at: int) -> int:
    raw, end = _counted(m, at, 8, "a text")
    m.stack.append(String(op.BINUNICODE8, str(raw, "utf-8", "surrogatepass")))
    return end


def _counted(m: Machine, at: int, width: int, what: str) -> tuple[bytes, int]:
    """Return the bytes behind a little-endian count of ``width`` bytes, and the position after them."""
    begin = m.need(width, at, "a count")
    end = m.need(int.from_bytes(m.data[at:begin], "little"), begin, what)
    m.nodes += 1
    return m.data[begin:end], end


def _short_binbytes(m: Machine, at: int) -> int:
    raw, end = _counted(m, at, 1, "a bytes object")
    m.stack.append(String(op.SHORT_BINBYTES, raw))
    return end


def _binbytes(m: Machine, at: int) -> int:
    raw, end = _counted(m, at, 4, "a bytes object")
    m.stack.append(String(op.BINBYTES, raw))
    return end


def _binbytes8(m: Machine, at: int) -> int:
    raw, end = _counted(m, at, 8, "a bytes object")
    m.stack.append(String(m.data[at - 1], raw))  # BINBYTES8 or BYTEARRAY8
    return end


def _either(raw: bytes) -> str | bytes:
    """Return a string of Python 2.

    It is text where it is UTF-8, as torch takes it, else bytes (which encoding, nobody knows).
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def _short_binstring(m: Machine, at: int) -> int:
    raw, end = _counted(m, at, 1, "a string")
    m.stack.append(String(op.SHORT_BINSTRING, _either(raw)))
    return end


def _binstring(m: Machine, at: int) -> int:
    if m.data[at : at + 4][3:] >= b"\x80":  # the count is signed
        raise damaged(at - 1, "BINSTRING", "has a negative count")
    raw, end = _counted(m, at, 4, "a string")
    m.stack.append(String(op.BINSTRING, _either(raw)))
    return end


def _string(m: Machine, at: int) -> int:
    line, end = m.line(at, None, at - 1)
    if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1]:
        raise damaged(at - 1, "STRING", "has an argument without quotes")
    value = _either(_ESCAPE.sub(lambda match: _unescaped(match, at - 1), line[1:-1]))
    return _line_text(m, op.STRING, value, at, end)


def _unescaped(match: re.Match[bytes], offset: int) -> bytes:
    octal, hexadecimal, letter = match.groups()
    if octal:
        return bytes((int(octal, 8) & 0xFF,))
    if hexadecimal:
        return bytes.fromhex(hexadecimal.decode())
    if letter is None or letter == b"x":
        raise damaged(offset, "STRING", "has a broken escape in its argument")
    return _ESCAPED.get(letter, b"\\" + letter)


def _unicode(m: Machine, at: int) -> int:
    line, end = m.line(at, None, at - 1)
    return _line_text(m, op.UNICODE, raw_unicode_escape_decode(line)[0], at, end)


def _line_text(m: Machine, code: int, value: str | bytes, at: int, end: int) -> int:
    if m.protocol < 0:
        m.protocol = 0
    m.nodes += 1
    raw = m.data[at - 1 : end]
    as_usual = canonical.text_bytes(code, value) == raw
    m.stack.append(String(code, value) if as_usual else Verbatim(code, value, raw))
    return end


HANDLERS: dict[int, Handler] = {
    op.BINUNICODE: _binunicode,
    op.SHORT_BINUNICODE: _short_binunicode,
    op.BINUNICODE8: _binunicode8,
    op.SHORT_BINBYTES: _short_binbytes,
    op.BINBYTES: _binbytes,
    op.BINBYTES8: _binbytes8,
    op.BYTEARRAY8: _binbytes8,
    op.SHORT_BINSTRING: _short_binstring,
    op.BINSTRING: _binstring,
    op.STRING: _string,
    op.UNICODE: _unicode,
}
