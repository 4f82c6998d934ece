"""Tells whether a pickle calls ``getattr`` for nothing but parts of the classes that it names.

Python 3.11.0 to 3.11.3 writes the members of an enum so, and pickle protocols below 4 write a class within a class: the
call gives what a name with dots would, which protocol 4 has. Sources: ``enum.Enum.__reduce_ex__`` of those versions
(Debian 12 has 3.11.2), ``save_global`` of Python's ``pickle``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.checkpoint import GlobalName, LookUp
from ckptdoctor.noun import replace
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Global, GlobalUse, Made, String, Tuple, Value, nodes, plain, values_inside

_GETATTR = frozenset({"builtins.getattr", "__builtin__.getattr"})
_DEEPEST = 8  # classes within classes


def with_lookups(
    uses: list[GlobalUse], root: Value, discards: bool, inner: Iterable[GlobalUse] = ()
) -> list[GlobalUse]:
    """Return what a pickle with this root names; ``getattr`` with what it looks up, where it does nothing else.

    ``inner`` are uses of it by pickles inside the stream, of which the root knows nothing.
    """
    if not any(is_getattr(use) for use in uses):
        return uses
    own = None if discards else _lookups(root)
    theirs = [use.looks_up for use in inner]
    if own is None or () in theirs:
        return uses
    found = tuple(dict.fromkeys([*own, *[each for some in theirs for each in some]]))
    return [replace(use, looks_up=found) if is_getattr(use) else use for use in uses]


def named_globals(uses: Iterable[GlobalUse], member: str, base: int = 0) -> tuple[GlobalName, ...]:
    """Return what pickles in ``member`` name, each once; they begin at its byte ``base``."""
    found: dict[tuple[object, ...], GlobalUse] = {}
    for use in uses:
        found.setdefault((use.module, use.name, use.looks_up, use.refers), use)
    return tuple(
        [
            GlobalName(use.module, use.name, member, base + use.offset, use.looks_up, use.refers)
            for use in found.values()
        ]
    )


def is_getattr(use: GlobalUse) -> bool:
    """Return whether it is ``getattr`` that is named."""
    return f"{use.module}.{use.name}" in _GETATTR


def _lookups(root: Value) -> tuple[LookUp, ...] | None:
    """Return every part that is looked up, each once; None where ``getattr`` is used for anything else."""
    found: list[Made] = []
    used: set[int] = set()
    if _is_getattr(root):
        return None
    for node in nodes(root):
        held = values_inside(node)
        if isinstance(node, Made) and node.op in op.CALLS:
            callee = plain(held[0])
            if node.op == op.REDUCE and _is_getattr(callee):
                found.append(node)
                held = held[1:]
                if node.steps:
                    used.add(id(node))
            else:
                used.add(id(callee))
        if any(map(_is_getattr, held)):
            return None
    made: dict[LookUp, None] = {}
    for node in found:
        names = _names(node)
        if names is None:
            return None
        made[LookUp(*names, id(node) in used)] = None
    return tuple(made)


def _is_getattr(value: Value) -> bool:
    value = plain(value)
    return isinstance(value, Global) and value.full in _GETATTR


def _names(node: Made) -> tuple[str, str] | None:
    """Return module and name of what a call looks up, however many steps it takes; None for any other call."""
    steps: list[str] = []
    value: Value = node
    while isinstance(value, Made) and len(steps) < _DEEPEST:
        if not _is_getattr(value.items[0]) or len(value.items) != 2:
            return None
        arguments = plain(value.items[1])
        if not isinstance(arguments, Tuple) or len(arguments.items) != 2:
            return None
        value, name = map(plain, arguments.items)
        if not isinstance(name, String) or not isinstance(name.value, str) or not name.value.isidentifier():
            return None
        steps.append(name.value)
    return (value.module, ".".join([value.name, *reversed(steps)])) if isinstance(value, Global) else None
