"""Reads NumPy arrays as they are pickled: what they hold, told without NumPy.

Sources: ``__reduce__`` and ``__setstate__`` of ``numpy.ndarray`` and ``numpy.dtype``. Arrays stand for tensors of
devices without storages in files of torch before 2.6 (``torch.Tensor._reduce_ex_internal``).
"""

from __future__ import annotations

from math import prod

from ckptdoctor.checkpoint import DType
from ckptdoctor.checkpoint.dtypes import NUMPY_ELEMENTS, NUMPY_MAKERS
from ckptdoctor.formats.torch.read.objects import plain_value
from ckptdoctor.formats.torch.read.values import CALLS, bare, call, filling, full_name, items, text
from ckptdoctor.noun import noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, String, Value

_OLD_STRINGS = (op.STRING, op.BINSTRING, op.SHORT_BINSTRING)  # of Python 2, where bytes were text
_ORDERS = ("<", "|", ">")  # byte orders: "|" where it does not matter


@noun
class Array:
    """An array in the graph. ``element`` is None where torch has no such type; ``swapped``: it is big-endian."""

    node: Made
    shape: Value
    element: str | None
    fortran: bool
    contents: Value
    swapped: bool = False


def array_of(value: Value) -> Array | None:
    """Return the array that ``_reconstruct`` and its state make, or None.

    The state is (version, shape, dtype, is_fortran, bytes).
    """
    node = bare(value)
    if not isinstance(node, Made) or node.op not in CALLS or full_name(node.items[0]) not in NUMPY_MAKERS:
        return None
    states = filling(node).states
    state = items(states[-1]) if states else None
    if state is None or len(state) != 5:
        return None
    element, swapped = _element(state[2])
    return Array(node, state[1], element, bare(state[3]) is True, state[4], swapped)


def _element(value: Value) -> tuple[str | None, bool]:
    """Return torch's name for ``numpy.dtype("f4", False, True)`` with its state, and whether it is big-endian."""
    node = bare(value)
    if not isinstance(node, Made) or node.op not in CALLS or full_name(node.items[0]) != "numpy.dtype":
        return None, False
    arguments, states = call(node)[1], filling(node).states
    state = items(states[-1]) if states else None
    if not arguments or state is None or len(state) < 2 or text(state[1]) not in _ORDERS:
        return None, False
    return NUMPY_ELEMENTS.get(text(arguments[0]) or ""), text(state[1]) == ">"


def elements(array: Array, wanted: DType, shape: tuple[int, ...]) -> bytes | None:
    """Return the array's bytes as elements of torch's ``wanted``, or None where they are not just what is to be stored.

    NumPy has no bfloat16, so torch widened it to float32. What was widened is cut again without loss.
    """
    raw = _bytes(array.contents)
    width = 4 if wanted.name == "bfloat16" else wanted.bits // 8
    if raw is None or array.swapped or wanted.storage_class is None or len(raw) != prod(shape) * width:
        return None
    if wanted.name == "bfloat16":
        return _narrowed(raw) if array.element == "float32" else None
    return raw if array.element == wanted.name else None


def _bytes(value: Value) -> bytes | None:
    node = bare(value)
    if isinstance(node, String):
        if isinstance(node.value, bytes):
            return node.value
        return node.value.encode("utf-8") if node.op in _OLD_STRINGS else None
    if isinstance(node, Made) and node.op in CALLS and full_name(node.items[0]) == "builtins.bytearray":
        given = call(node)[1]
        return _bytes(given[0]) if given else b""
    found = plain_value(node) if isinstance(node, Made) and node.op in CALLS else None
    return found if isinstance(found, bytes) else None


def _narrowed(raw: bytes) -> bytes | None:
    """Return the upper halves of little-endian float32, or None where a lower half is not zero."""
    if any(raw[0::4]) or any(raw[1::4]):
        return None
    cut = bytearray(len(raw) // 2)
    cut[0::2], cut[1::2] = raw[2::4], raw[3::4]
    return bytes(cut)
