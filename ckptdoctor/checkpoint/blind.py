"""Replaces values that nobody may look at: so it is found out what depends on them, and what does not.

What runs to its end with blind values had no use for them, and does the same whatever they are. A blind value has the
class of the one it replaces, which is all that it tells: to compare, print, count or read anything of it raises
``Looked``. ``type(x) is int`` alone sees through that, so who may meet one asks ``isinstance``, which is answered as it
would be. ``Looked`` is not an Exception: nothing on the way may take it for an error.
"""

from __future__ import annotations

from typing import Any


class Looked(BaseException):
    """Somebody looked at what has no value."""


def _look(self: object, *_: object) -> Any:
    raise Looked


_ASKED = (
    *("eq", "ne", "lt", "le", "gt", "ge", "hash", "bool", "str", "repr", "format", "bytes", "fspath", "len", "iter"),
    *(
        "contains",
        "getitem",
        "int",
        "float",
        "complex",
        "index",
        "round",
        "trunc",
        "floor",
        "ceil",
        "neg",
        "pos",
        "abs",
    ),
    *("invert", "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift"),
    *("and", "or", "xor", "radd", "rsub", "rmul", "rmatmul", "rtruediv", "rfloordiv", "rmod", "rdivmod", "rpow"),
    *("rlshift", "rrshift", "rand", "ror", "rxor", "call", "next", "reversed", "enter", "exit", "reduce", "reduce_ex"),
)


def _class_for(kind: type) -> type:
    def attribute(self: object, name: str) -> Any:
        if name == "__class__":
            return kind
        raise Looked

    body = {f"__{name}__": _look for name in _ASKED}
    return type(f"Blind{kind.__name__.title()}", (), {"__slots__": (), "__getattribute__": attribute, **body})


_CLASSES: dict[type, type] = {kind: _class_for(kind) for kind in (int, float, str)}


def blind(kind: type) -> Any:
    """Return a blind value in place of a number or a text."""
    return _CLASSES[kind]()
