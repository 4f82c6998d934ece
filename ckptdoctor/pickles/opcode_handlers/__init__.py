"""A table of 256 handlers says what each opcode does; each is called with the machine and the place behind it.

A handler returns the position of the next opcode. It may raise LookupError for a stack that holds too little,
KeyError for a memo entry that does not exist, ``struct.error`` or IndexError for an argument that is cut off; the main
loop knows the opcode and its offset and turns each into an error of this package.
"""

from __future__ import annotations

from ckptdoctor.pickles.machine import Handler, Machine, damaged
from ckptdoctor.pickles.opcode_handlers import calls, containers, framing, memo, numbers, strings


def _unknown(machine: Machine, at: int) -> int:
    code = machine.data[at - 1]
    raise damaged(at - 1, f"0x{code:02x}", "is not an opcode of any pickle protocol")


def _table() -> tuple[Handler, ...]:
    table: list[Handler] = [_unknown] * 256
    for module in (calls, containers, framing, memo, numbers, strings):
        for code, handler in module.HANDLERS.items():
            table[code] = handler
    return tuple(table)


HANDLERS: tuple[Handler, ...] = _table()
