"""Parts of torch's own classes, which Python pickles as calls of ``getattr``: looking them up does nothing else.

Pickle protocols below 4 write a class within a class so, and Python 3.11 the members of an enum. Sources:
``save_global`` of Python's ``pickle``, ``enum.Enum.__reduce_ex__``, ``torch.distributed._shard.sharded_tensor``.
"""

from __future__ import annotations

import re

from ckptdoctor.formats.torch_objects.sweep import below, nodes
from ckptdoctor.pickles.graph import Global, GlobalUse, Made, Pickle, Text, Tuple, Value, plain

_GETATTR = frozenset({"builtins.getattr", "__builtin__.getattr"})
_SHARDED = "torch.distributed._shard.sharded_tensor"
_PARTS = {
    f"{_SHARDED}.api.ShardedTensor": re.compile("ProcessGroupState"),
    f"{_SHARDED}.metadata.MEM_FORMAT_ENCODING": re.compile("[A-Z][A-Z_]*"),
}


def named(pickle: Pickle) -> list[GlobalUse]:
    """What the pickle names, without a ``getattr`` that only looks up parts of such classes."""
    if any(f"{use.module}.{use.name}" in _GETATTR for use in pickle.globals) and _only_parts(pickle):
        return [use for use in pickle.globals if f"{use.module}.{use.name}" not in _GETATTR]
    return pickle.globals


def _only_parts(pickle: Pickle) -> bool:
    """Whether every ``getattr`` is called at once, with such a class and the name of its part."""
    if pickle.discards or _is_getattr(pickle.root):
        return False
    for node in nodes(pickle.root):
        held = below(node)
        if isinstance(node, Made) and held and _is_getattr(held[0]):
            if not _is_lookup(node.items):
                return False
            held = held[1:]
        if any(map(_is_getattr, held)):
            return False
    return True


def _is_getattr(value: Value) -> bool:
    value = plain(value)
    return isinstance(value, Global) and value.full in _GETATTR


def _is_lookup(call: list[Value]) -> bool:
    arguments = plain(call[1]) if len(call) == 2 else None
    if not isinstance(arguments, Tuple) or len(arguments.items) != 2:
        return False
    owner, name = map(plain, arguments.items)
    known = _PARTS.get(owner.full) if isinstance(owner, Global) else None
    return known is not None and isinstance(name, Text) and known.fullmatch(str(name.value)) is not None
