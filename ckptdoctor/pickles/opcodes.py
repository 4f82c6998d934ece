"""The pickle opcodes of protocols 0 to 5 are integers here, with their names and the size of their fixed arguments.

The source is CPython's ``Lib/pickle.py`` and ``Lib/pickletools.py``; neither is imported, because both pull in far more
than a table of numbers.
"""

from __future__ import annotations

from typing import Final

MARK: Final = 0x28
STOP: Final = 0x2E
POP: Final = 0x30
POP_MARK: Final = 0x31
DUP: Final = 0x32
FLOAT: Final = 0x46
INT: Final = 0x49
BININT: Final = 0x4A
BININT1: Final = 0x4B
LONG: Final = 0x4C
BININT2: Final = 0x4D
NONE: Final = 0x4E
PERSID: Final = 0x50
BINPERSID: Final = 0x51
REDUCE: Final = 0x52
STRING: Final = 0x53
BINSTRING: Final = 0x54
SHORT_BINSTRING: Final = 0x55
UNICODE: Final = 0x56
BINUNICODE: Final = 0x58
APPEND: Final = 0x61
BUILD: Final = 0x62
GLOBAL: Final = 0x63
DICT: Final = 0x64
EMPTY_DICT: Final = 0x7D
APPENDS: Final = 0x65
GET: Final = 0x67
BINGET: Final = 0x68
INST: Final = 0x69
LONG_BINGET: Final = 0x6A
LIST: Final = 0x6C
EMPTY_LIST: Final = 0x5D
OBJ: Final = 0x6F
PUT: Final = 0x70
BINPUT: Final = 0x71
LONG_BINPUT: Final = 0x72
SETITEM: Final = 0x73
TUPLE: Final = 0x74
EMPTY_TUPLE: Final = 0x29
SETITEMS: Final = 0x75
BINFLOAT: Final = 0x47

# protocol 2
PROTO: Final = 0x80
NEWOBJ: Final = 0x81
EXT1: Final = 0x82
EXT2: Final = 0x83
EXT4: Final = 0x84
TUPLE1: Final = 0x85
TUPLE2: Final = 0x86
TUPLE3: Final = 0x87
NEWTRUE: Final = 0x88
NEWFALSE: Final = 0x89
LONG1: Final = 0x8A
LONG4: Final = 0x8B

# protocol 3
BINBYTES: Final = 0x42
SHORT_BINBYTES: Final = 0x43

# protocol 4
SHORT_BINUNICODE: Final = 0x8C
BINUNICODE8: Final = 0x8D
BINBYTES8: Final = 0x8E
EMPTY_SET: Final = 0x8F
ADDITEMS: Final = 0x90
FROZENSET: Final = 0x91
NEWOBJ_EX: Final = 0x92
STACK_GLOBAL: Final = 0x93
MEMOIZE: Final = 0x94
FRAME: Final = 0x95

# protocol 5
BYTEARRAY8: Final = 0x96
NEXT_BUFFER: Final = 0x97
READONLY_BUFFER: Final = 0x98

# The names of the opcodes, for messages.
NAMES: Final[dict[int, str]] = {value: name for name, value in list(globals().items()) if isinstance(value, int)}

# Bytes of argument that always follow the opcode (for counted strings: the count).
ARGUMENT_SIZE: Final[dict[int, int]] = {
    **dict.fromkeys((BININT1, BINGET, BINPUT, PROTO, EXT1, LONG1, SHORT_BINSTRING, SHORT_BINBYTES), 1),
    **dict.fromkeys((SHORT_BINUNICODE,), 1),
    **dict.fromkeys((BININT2, EXT2), 2),
    **dict.fromkeys((BININT, LONG_BINGET, LONG_BINPUT, EXT4, LONG4, BINSTRING, BINUNICODE, BINBYTES), 4),
    **dict.fromkeys((BINFLOAT, BINUNICODE8, BINBYTES8, BYTEARRAY8, FRAME), 8),
}

# Opcodes whose result some code outside the pickle computes.
CALLS: Final = frozenset({REDUCE, NEWOBJ, NEWOBJ_EX, OBJ, INST})


def opcode_name(op: int) -> str:
    """Return the name of an opcode, or its number when there is no such opcode."""
    return NAMES.get(op, f"0x{op:02x}")
