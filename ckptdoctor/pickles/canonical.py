"""Python's own pickler writes these bytes for a constant, a string or a memo index under a given protocol."""

from __future__ import annotations

from codecs import raw_unicode_escape_encode  # by name, because looking the codec up would import a module
from struct import pack

from ckptdoctor.pickles import opcodes as op

_SHORT = tuple(bytes((op.BININT1, value)) for value in range(256))


def constant(value: bool | int | float | None, protocol: int) -> bytes:
    """Return the opcode and argument for a constant (``save_none``, ``save_bool``, ``save_long``, ``save_float``)."""
    if value is None:
        return b"N"
    if value is True:
        return b"\x88" if protocol >= 2 else b"I01\n"
    if value is False:
        return b"\x89" if protocol >= 2 else b"I00\n"
    if isinstance(value, float):
        return b"G" + pack(">d", value) if protocol >= 1 else b"F%s\n" % repr(value).encode()
    return integer_bytes(value, protocol)


def integer_bytes(value: int, protocol: int) -> bytes:
    """Return the opcode and argument for an integer; one beyond 32 bits is a LONG of some kind."""
    if protocol < 1:
        return b"I%d\n" % value if -0x80000000 <= value <= 0x7FFFFFFF else b"L%dL\n" % value
    if 0 <= value <= 0xFFFF:
        return _SHORT[value] if value <= 0xFF else b"M" + pack("<H", value)
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return b"J" + pack("<i", value)
    if protocol < 2:
        return b"L%dL\n" % value
    raw = twos_complement(value)
    return bytes((op.LONG1, len(raw))) + raw if len(raw) < 256 else b"\x8b" + pack("<i", len(raw)) + raw


def twos_complement(value: int) -> bytes:
    """Return the shortest little-endian two's complement of an integer; nothing for zero (``pickle.encode_long``)."""
    if value == 0:
        return b""
    size = ((value if value >= 0 else ~value).bit_length() >> 3) + 1
    return value.to_bytes(size, "little", signed=True)


def text_bytes(code: int, value: str | bytes) -> bytes:
    """Return the opcode, count and contents of a string under the opcode ``code``."""
    if code in (op.STRING, op.PERSID, op.UNICODE):
        return _line(code, value)
    raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    if code in (op.SHORT_BINUNICODE, op.SHORT_BINSTRING, op.SHORT_BINBYTES):
        return bytes((code, len(raw))) + raw
    if code in (op.BINUNICODE8, op.BINBYTES8, op.BYTEARRAY8):
        return bytes((code,)) + pack("<Q", len(raw)) + raw
    return bytes((code,)) + pack("<I", len(raw)) + raw


def _line(code: int, value: str | bytes) -> bytes:
    if code == op.STRING:  # the repr of Python 2's str is that of bytes without its b
        return b"S%s\n" % repr(value if isinstance(value, bytes) else value.encode("utf-8"))[1:].encode()
    assert isinstance(value, str)
    if code == op.PERSID:
        return b"P%s\n" % value.encode("ascii")
    for char in "\\\0\n\r\x1a":
        value = value.replace(char, f"\\u{ord(char):04x}")
    return b"V%s\n" % raw_unicode_escape_encode(value)[0]


def put(index: int, protocol: int) -> bytes:
    """Return the instruction that stores the top of the stack in the memo."""
    if protocol < 1:
        return b"p%d\n" % index
    return bytes((op.BINPUT, index)) if index < 256 else b"r" + pack("<I", index)


def get(index: int, protocol: int) -> bytes:
    """Return the instruction that fetches a memo entry."""
    if protocol < 1:
        return b"g%d\n" % index
    return bytes((op.BINGET, index)) if index < 256 else b"j" + pack("<I", index)
