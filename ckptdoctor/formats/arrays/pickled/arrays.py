"""Finds the arrays of a plain pickle by the calls that make them, and where their values are.

Sources: ``numpy.ndarray.__reduce__`` and ``__reduce_ex__`` (protocol 5: ``numpy._core.numeric._frombuffer``), and
joblib's ``NumpyArrayWrapper``. Strings of Python 2 hold raw bytes; protocol 2 of Python 3 writes bytes as text.
"""

from __future__ import annotations

from ckptdoctor.formats.arrays.pickled.joblib import Kind, kind_of
from ckptdoctor.formats.arrays.pickled.stream import Held, Payload
from ckptdoctor.formats.torch.read.objects import plain_value
from ckptdoctor.formats.torch.read.values import CALLS, bare, call, filling, full_name, integer, items, text
from ckptdoctor.formats.torch.read.views import MAX_DIMENSIONS
from ckptdoctor.noun import noun
from ckptdoctor.pickles.graph import Made, String, Value

_MAKERS = frozenset({"numpy._core.multiarray._reconstruct", "numpy.core.multiarray._reconstruct"})
_FROM_BUFFER = frozenset({"numpy._core.numeric._frombuffer", "numpy.core.numeric._frombuffer"})
_PLAIN = frozenset({"numpy.ndarray", "numpy.memmap", "numpy.core.memmap.memmap"})
_MAX_COUNT = (1 << 63) - 1


@noun
class Array:
    """An array of the graph. Its values are at ``start`` of the file, or ``held`` in memory; neither: out of reach."""

    kind: Kind
    shape: tuple[int, ...]
    fortran: bool
    start: int | None = None
    length: int = 0
    held: bytes | None = None


def array_of(node: Made, payloads: dict[int, Payload]) -> Array | None:
    """Return the array that an object of the graph is, or None for any other object."""
    if node.op not in CALLS:
        return None
    payload = payloads.get(id(node))
    if payload is not None:
        return _joblib(payload)
    name = full_name(node.items[0])
    if name in _MAKERS:
        return _reconstructed(node)
    return _from_buffer(node) if name in _FROM_BUFFER else None


def _joblib(payload: Payload) -> Array | None:
    array = payload.array
    if not array.plain or len(array.shape) > MAX_DIMENSIONS:
        return None
    return Array(array.kind, array.shape, array.fortran, payload.start, array.nbytes)


def _reconstructed(node: Made) -> Array | None:
    """Read ``_reconstruct(ndarray, (0,), b"b")`` with the state (version, shape, dtype, is_fortran, values)."""
    arguments, states = call(node)[1], filling(node).states
    state = items(states[-1]) if states else None
    if state is None or len(state) != 5 or not arguments or full_name(arguments[0]) not in _PLAIN:
        return None
    return _found(state[2], state[1], bare(state[3]) is True, state[4])


def _from_buffer(node: Made) -> Array | None:
    """Read ``_frombuffer(buffer, dtype, shape, order[, axes])``."""
    arguments = call(node)[1]
    if len(arguments) == 5 and bare(arguments[4]) is None:
        arguments = arguments[:4]
    order = text(arguments[3]) if len(arguments) == 4 else None
    if order not in ("C", "F"):
        return None
    return _found(arguments[1], arguments[2], order == "F", arguments[0])


def _found(dtype: Value, shape: Value, fortran: bool, values: Value) -> Array | None:
    kind, sizes = kind_of(dtype), _sizes(shape)
    if kind is None or sizes is None:
        return None
    node = bare(values)
    if isinstance(node, Held):
        return Array(kind, sizes, fortran, node.start, node.length)
    return Array(kind, sizes, fortran, held=bytes_of(node))


def bytes_of(node: Value) -> bytes | None:
    """Return the bytes that a value is, taken out of the pickle, or None where it is not a bytes object."""
    if isinstance(node, String):
        value = node.value
        return value.encode("latin1") if isinstance(value, str) and value.isascii() else _bytes(value)
    return _bytes(plain_value(node)) if type(node) is Made and node.op in CALLS else None


def _bytes(value: object) -> bytes | None:
    return value if isinstance(value, bytes) else None


def _sizes(shape: Value) -> tuple[int, ...] | None:
    given = items(shape)
    found = [integer(size) for size in given or ()]
    if given is None or len(found) > MAX_DIMENSIONS:
        return None
    sizes = tuple([size for size in found if size is not None and 0 <= size <= _MAX_COUNT])
    return sizes if len(sizes) == len(found) else None
