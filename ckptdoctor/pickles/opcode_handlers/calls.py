"""Classes and functions by name, calls of them, persistent ids and extension codes are noted, never carried out."""

from __future__ import annotations

from struct import unpack_from

from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Extension, Global, Made, PersistentId, String, Value, plain
from ckptdoctor.pickles.machine import Handler, Machine, damaged

# The name of a class or function that the stream computes, so that nobody can know it without running the stream.
COMPUTED = "<computed>"


def _named(m: Machine, at: int, code: str, encoding: str) -> tuple[str, str, int]:
    """Return the module, name and end of a GLOBAL or INST."""
    first, middle = m.line(at, m.budgets.line, at - 1)
    second, end = m.line(middle, m.budgets.line, at - 1)
    try:
        module, name = first.decode(encoding), second.decode(encoding)
    except UnicodeDecodeError:
        raise damaged(at - 1, code, f"names something that is not valid {encoding}") from None
    if not (module and name and first.isascii() and second.isascii() and (module + name).isprintable()):
        m.ambiguous("global-name", f"{code} names {module!r} {name!r}, which unpicklers read differently", at - 1)
    m.name(module, name, at - 1)
    m.nodes += 1
    return module, name, end


def _global(m: Machine, at: int) -> int:
    module, name, end = _named(m, at, "GLOBAL", "utf-8")
    m.stack.append(Global(op.GLOBAL, module, name))
    return end


def _stack_global(m: Machine, at: int) -> int:
    second = m.stack.pop()
    first = m.stack[-1]
    module, name = _part(first), _part(second)
    if module is None or name is None:
        m.ambiguous("global-name", "STACK_GLOBAL takes a name that is not a text written in the pickle", at - 1)
    elif not (module + name).isprintable() or not module or not name:
        m.ambiguous("global-name", f"STACK_GLOBAL names {module!r} {name!r}, which no pickler writes", at - 1)
    module = COMPUTED if module is None else module
    name = COMPUTED if name is None else name
    m.name(module, name, at - 1)
    m.nodes += 1
    m.stack[-1] = Global(op.STACK_GLOBAL, module, name, [first, second])
    return at


def _part(value: Value) -> str | None:
    value = plain(value)
    return value.value if isinstance(value, String) and isinstance(value.value, str) else None


def _inst(m: Machine, at: int) -> int:
    module, name, end = _named(m, at, "INST", "ascii")
    arguments = m.pop_mark()
    m.nodes += 1
    m.calls += 1
    m.stack.append(Made(op.INST, [Global(op.INST, module, name), *arguments]))
    return end


def _obj(m: Machine, at: int) -> int:
    items = m.pop_mark()
    if not items:
        raise damaged(at - 1, "OBJ", "has no class to make an object of")
    m.nodes += 1
    m.calls += 1
    m.stack.append(Made(op.OBJ, items))
    return at


def _reduce(m: Machine, at: int) -> int:
    arguments = m.stack.pop()
    m.nodes += 1
    m.calls += 1
    m.stack[-1] = Made(m.data[at - 1], [m.stack[-1], arguments])  # REDUCE or NEWOBJ
    return at


def _newobj_ex(m: Machine, at: int) -> int:
    keywords = m.stack.pop()
    arguments = m.stack.pop()
    m.nodes += 1
    m.calls += 1
    m.stack[-1] = Made(op.NEWOBJ_EX, [m.stack[-1], arguments, keywords])
    return at


def _persid(m: Machine, at: int) -> int:
    line, end = m.line(at, m.budgets.line, at - 1)
    if not line.isascii():
        raise damaged(at - 1, "PERSID", "has an argument that is not ASCII")
    if m.protocol < 0:
        m.protocol = 0
    m.nodes += 1
    m.stack.append(PersistentId(op.PERSID, String(op.PERSID, line.decode("ascii"))))
    return end


def _binpersid(m: Machine, at: int) -> int:
    identity = m.stack[-1]
    if isinstance(identity, String) and isinstance(identity.value, str) and "\n" in identity.value:
        m.ambiguous("persistent-id", "BINPERSID has an id with a newline, which protocol 0 reads differently", at - 1)
    m.nodes += 1
    m.stack[-1] = PersistentId(op.BINPERSID, identity)
    return at


def _next_buffer(m: Machine, at: int) -> int:
    m.nodes += 1
    m.stack.append(PersistentId(op.NEXT_BUFFER, None))
    return at


def _readonly_buffer(m: Machine, at: int) -> int:
    m.nodes += 1
    m.stack[-1] = PersistentId(op.READONLY_BUFFER, m.stack[-1])
    return at


def _extension(m: Machine, at: int) -> int:
    code = m.data[at - 1]
    layout, width = {op.EXT1: ("<B", 1), op.EXT2: ("<H", 2)}.get(code, ("<i", 4))
    number: int = unpack_from(layout, m.data, at)[0]
    if number <= 0:
        raise damaged(at - 1, op.opcode_name(code), f"has the extension code {number}, which cannot exist")
    m.ambiguous("extension", f"extension code {number} means what each program registered for it", at - 1)
    m.nodes += 1
    m.stack.append(Extension(code, number))
    return at + width


HANDLERS: dict[int, Handler] = {
    op.GLOBAL: _global,
    op.STACK_GLOBAL: _stack_global,
    op.INST: _inst,
    op.OBJ: _obj,
    op.REDUCE: _reduce,
    op.NEWOBJ: _reduce,
    op.NEWOBJ_EX: _newobj_ex,
    op.PERSID: _persid,
    op.BINPERSID: _binpersid,
    op.NEXT_BUFFER: _next_buffer,
    op.READONLY_BUFFER: _readonly_buffer,
    op.EXT1: _extension,
    op.EXT2: _extension,
    op.EXT4: _extension,
}
