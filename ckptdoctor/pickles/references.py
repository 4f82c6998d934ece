"""Tells which names a pickle only refers to: they become values, and nothing is called with them or done to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ckptdoctor.noun import replace
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Global, GlobalUse, Made, PersistentId, PickleNode, Tuple, Value, plain

# modules whose names are in most checkpoints, as what rebuilds tensors and dicts: nobody asks about these
_EVERYWHERE = frozenset({"torch", "torch._utils", "torch.storage", "torch.nn.parameter", "collections", "_codecs"})
_CONTAINERS = frozenset({op.EMPTY_LIST, op.LIST, op.EMPTY_DICT, op.DICT})
_FILLING = frozenset({op.APPEND, op.APPENDS, op.SETITEM, op.SETITEMS})
_KEYED = frozenset({op.SETITEM, op.SETITEMS})


def with_references(
    uses: list[GlobalUse], root: Value, discards: bool, inner: Iterable[GlobalUse] = ()
) -> list[GlobalUse]:
    """Return what a pickle with this root names, with what it only refers to.

    ``inner`` are uses by pickles inside the stream, of which the root knows nothing. Where values are thrown away,
    none of this is known.
    """
    if discards or all(use.module in _EVERYWHERE for use in uses):
        return uses
    used = {(use.module, use.name) for use in inner} | _used(root)
    return [use if (use.module, use.name) in used else replace(use, refers=True) for use in uses]


def _used(root: Value) -> set[tuple[str, str]]:
    """Return the names that anything but a list, a tuple or a value of a dict has, as deep as it goes."""
    found: set[tuple[str, str]] = set()
    kept: set[PickleNode] = set()  # reached as plain values; nodes are compared by identity
    given: set[PickleNode] = set()  # reached through a call, a state, a key or an identifier
    stack: list[tuple[Value, bool]] = [(root, False)]
    while stack:
        value, is_given = stack.pop()
        value = plain(value)
        seen = given if is_given else kept
        if not isinstance(value, (Global, Tuple, Made, PersistentId)) or value in seen:
            continue
        seen.add(value)
        if isinstance(value, Global):
            if is_given:
                found.add((value.module, value.name))
        elif not (isinstance(value, Made) and value.folded is not None):  # a tensor's call has no other names
            stack.extend((each, is_given or harms) for each, harms in _inside(value))
    return found


def _inside(value: Tuple | Made | PersistentId) -> Iterator[tuple[Value, bool]]:
    """Yield what a node has, and whether something is called with it, looked up by it, or set by it."""
    if isinstance(value, PersistentId):
        yield value.id, True
    elif isinstance(value, Tuple):
        for each in value.items:
            yield each, value.op == op.FROZENSET
    else:
        container = value.op in _CONTAINERS
        keyed = value.op == op.DICT
        for number, each in enumerate(value.items):
            yield each, not container or (keyed and number % 2 == 0)
        for step in value.steps or ():
            for number, each in enumerate(step.payload):
                is_key = step.op in _KEYED and number % 2 == 0
                yield each, not container or step.op not in _FILLING or is_key
