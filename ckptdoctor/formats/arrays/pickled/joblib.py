"""Finds the arrays that joblib writes into the stream of a pickle, each right behind the object that stands for it.

Source: ``joblib.numpy_pickle.NumpyArrayWrapper`` of joblib 0.10 to 1.6. The object's state tells how long the array is.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from ckptdoctor.errors import DamagedError
from ckptdoctor.formats.arrays.npy_header import Element, element
from ckptdoctor.formats.torch.read.values import CALLS, bare, call, filling, full_name, integer, items, plain_dict, text
from ckptdoctor.noun import noun
from ckptdoctor.pickles.graph import Made, Value
from ckptdoctor.regex import regex

# ---- the element type of a pickled array
#
# Source: ``__reduce__`` and ``__setstate__`` of ``numpy.dtype``: ``dtype("f4", False, True)`` with the state
# (3, "<", subarray, names, fields, itemsize, alignment, flags), where the itemsize is -1 for types of a fixed size.


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
    """Return the element type that a ``numpy.dtype`` of the graph is, or None for anything that is none."""
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


# ---- the object and its array


WRAPPERS = frozenset(
    {"joblib.numpy_pickle.NumpyArrayWrapper", "sklearn.externals.joblib.numpy_pickle.NumpyArrayWrapper"}
)

_PLAIN = frozenset({"numpy.ndarray", "numpy.memmap", "numpy.core.memmap.memmap"})
_ALIGNMENT = "numpy_array_alignment_bytes"
_MAX_COUNT = (1 << 63) - 1


@noun
class Wrapped:
    """What the object says about its array: ``plain`` is false for a matrix or another subclass."""

    shape: tuple[int, ...]
    fortran: bool
    kind: Kind
    aligned: bool
    plain: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return prod(self.shape) * self.kind.itemsize


def is_wrapper(value: Value) -> bool:
    """Return whether an object stands for an array that follows it."""
    return type(value) is Made and value.op in CALLS and full_name(value.items[0]) in WRAPPERS


def wrapped(node: Made, at: int) -> Wrapped:
    """Return the array that an object stands for. Raises DamagedError where it does not tell how long that is."""
    states = filling(node).states
    state = plain_dict(states[-1]) if states else {}
    given = items(state.get("shape"))
    sizes = [None] if given is None else [integer(size) for size in given]
    kind = kind_of(state.get("dtype"))
    if kind is None or any(size is None or not 0 <= size <= _MAX_COUNT for size in sizes):
        raise DamagedError(
            f"the array that joblib wrote at byte {at} has no valid shape and type, so its length is "
            "unknown: the file is damaged",
            offset=at,
        )
    shape = tuple([size for size in sizes if size is not None])
    aligned = integer(state.get(_ALIGNMENT)) is not None
    plain = full_name(state.get("subclass")) in _PLAIN
    return Wrapped(shape, text(state.get("order")) == "F", kind, aligned, plain)
