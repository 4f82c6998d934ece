"""The element type of a pickled array: what torch calls it, and how long an element is in any case.

Source: ``__reduce__`` and ``__setstate__`` of ``numpy.dtype``: ``dtype("f4", False, True)`` with the state
(3, "<", subarray, names, fields, itemsize, alignment, flags), where the itemsize is -1 for types of a fixed size.
"""

from __future__ import annotations

from typing import NamedTuple

from ckptdoctor.formats.arrays.elements import Element, element
from ckptdoctor.formats.torch.read.steps import filling
from ckptdoctor.formats.torch.read.values import CALLS, bare, call, full_name, integer, items, text
from ckptdoctor.pickles.graph import Made, Value
from ckptdoctor.regex import regex

_CODE = regex(r"[<>|=]?[a-zA-Z?]([0-9]{0,9})")
_MAX_ITEM = 1 << 31
_HAS_OBJECT = 1  # NPY_ITEM_HASOBJECT
_STATE_FLAGS = 8  # how many fields a state has at least when the last ones are itemsize, alignment and flags


class Kind(NamedTuple):
    """``element`` is None for what torch has no type for; ``objects``: the values are pickled Python objects."""

    code: str
    element: Element | None
    itemsize: int
    objects: bool


def kind_of(value: Value) -> Kind | None:
    """The element type that a ``numpy.dtype`` of the graph is; None for anything that is none."""
    node = bare(value)
    if type(node) is not Made or node.op not in CALLS or full_name(node.items[0]) != "numpy.dtype":
        return None
    arguments, states = call(node)[1], filling(node).states
    code = text(arguments[0]) if arguments else None
    found = _CODE.fullmatch(code or "")
    state = items(states[-1]) if states else []
    if code is None or found is None or state is None:
        return None
    order = text(state[1]) if len(state) > 1 else None
    fixed = len(state) < _STATE_FLAGS
    itemsize, flags = (None, None) if fixed else (integer(state[5]), integer(state[7]))
    length = itemsize if itemsize is not None and itemsize >= 0 else int(found[1] or 1)
    if length > _MAX_ITEM or (not fixed and flags is None):
        return None
    objects = "O" in code or bool((flags or 0) & _HAS_OBJECT)
    plain = len(state) <= 3 or all(bare(each) is None for each in state[2:5])  # no subarray, no fields
    return Kind(code, element(code, order or "") if plain else None, length, objects)
