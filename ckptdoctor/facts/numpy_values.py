"""Reads NumPy's numbers and arrays as their pickles spell them out, those of Python 2 too, without NumPy.

Sources: ``__reduce__`` and ``__setstate__`` of ``numpy.ndarray`` and ``numpy.dtype``, ``numpy.datetime_as_string``, and
``numpy._core.numeric._frombuffer``, which makes the arrays of protocol 5.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Union

from ckptdoctor.checkpoint import Checkpoint, DType, Mapping, Named, Node, Opaque, Sequence
from ckptdoctor.checkpoint.dtypes import BY_NAME, NUMPY_BUFFERS, NUMPY_ELEMENTS, NUMPY_MAKERS, little_endian
from ckptdoctor.checkpoint.first_bytes import pickle_protocol
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.noun import noun

_DIMENSIONS = 64  # that an array can have
_LISTED = 1 << 20  # elements that are written as a list: more would be a pickle that takes minutes to read

# codes of one element (kind and bytes) as the struct module writes them
_NUMBERS = {"f8": "d", "f4": "f", "f2": "e", "b1": "?"}
_NUMBERS |= {"i8": "q", "i4": "i", "i2": "h", "i1": "b", "u8": "Q", "u4": "I", "u2": "H", "u1": "B"}
_COMPLEX = {"c8": "f", "c16": "d"}
_NAMES = {"f": "float", "c": "complex", "m": "timedelta64", "V": "void", "O": "object"}
_NOT_A_TIME = -(1 << 63)
_EPOCH = 719_163  # date(1970, 1, 1).toordinal()
# units of datetime64: how many make a day (those of days), and the digits that they have behind a second
_PER_DAY = {"h": 24, "m": 1440, "s": 86400}
_DIGITS = {unit: 3 * power for power, unit in enumerate(("ms", "us", "ns", "ps", "fs", "as"), start=1)}
_CLOCK = {"h": 1, "m": 2, "s": 3}  # numbers of a time of day that are written


class NotPlainError(Exception):
    """The value cannot be expressed in plain data without loss; the text names the obstacle."""


@noun
class Element:
    """One element: its code (kind and bytes, "f4"), and how its bytes are laid out.

    ``unit`` is (name, count) of a datetime64; ``fields`` are (name, element, offset) of a structured one.
    """

    code: str
    width: int
    order: str
    unit: Union[tuple[str, int], None] = None
    fields: tuple[tuple[str, Element, int], ...] = ()

    @property
    def swapped(self) -> bool:
        """Whether it is big-endian."""
        return self.order == ">"

    @property
    def called(self) -> str:
        """Its name as NumPy shows it."""
        name = _NAMES.get(self.code[:1], "")
        return f"{name}{self.width * 8}" if name in ("float", "complex") else name or self.code


@noun
class Array:
    """An array: ``contents`` are the bytes of its elements, or a list of the objects that they are."""

    shape: tuple[int, ...]
    element: Element
    fortran: bool
    contents: Union[bytes, Sequence]

    @property
    def count(self) -> int:
        """How many elements it has."""
        return prod(self.shape)


def array_of(node: Node) -> Array | None:
    """Return the array that a node makes, or None for anything else, and where it was not written in NumPy's way."""
    if not isinstance(node, Opaque) or node.items or node.entries:
        return None
    try:
        if node.class_name in NUMPY_MAKERS:
            return _reconstructed(node)
        return _from_buffer(node) if node.class_name in NUMPY_BUFFERS else None
    except NotPlainError:
        return None


def _reconstructed(node: Opaque) -> Array | None:
    """Read ``_reconstruct(class, …)`` with the state (version, shape, dtype, is_fortran, values)."""
    kind = node.arguments[0] if node.arguments else None
    if not isinstance(kind, Named) or not kind.name.startswith("numpy.") or not isinstance(node.state, Sequence):
        return None
    if len(node.state.items) != 5:
        return None
    _, sizes, dtype, fortran, contents = node.state.items
    return _array(sizes, dtype, fortran is True, contents)


def _from_buffer(node: Opaque) -> Array | None:
    """Read ``_frombuffer(bytes, dtype, shape, "C" or "F")``."""
    if len(node.arguments) < 4 or node.state is not None or any(each is not None for each in node.arguments[4:]):
        return None
    contents, dtype, sizes, order = node.arguments[:4]
    if isinstance(contents, Opaque) and contents.class_name == "builtins.bytearray" and len(contents.arguments) < 2:
        contents = contents.arguments[0] if contents.arguments else b""
    return _array(sizes, dtype, order == "F", contents) if order in ("C", "F") else None


def _array(sizes: Node, dtype: Node, fortran: bool, contents: Node) -> Array | None:
    shape, element = _shape(sizes), element_of(dtype)
    if shape is None or not isinstance(contents, (bytes, Sequence)):
        return None
    made = Array(shape, element, fortran, contents)
    if isinstance(contents, Sequence):
        return made if element.code[:1] == "O" and len(contents.items) == made.count else None
    return made if len(contents) == made.count * element.width else None


def _shape(node: Node) -> tuple[int, ...] | None:
    if not isinstance(node, Sequence) or len(node.items) > _DIMENSIONS:
        return None
    sizes = [item for item in node.items if type(item) is int and 0 <= item < 1 << 63]
    return tuple(sizes) if len(sizes) == len(node.items) else None


def element_of(dtype: Node) -> Element:
    """Return what a pickled ``numpy.dtype`` says: called with ("f8", False, True), its state is (3, "<", …).

    Raises NotPlainError for anything else.
    """
    code = dtype.arguments[0] if isinstance(dtype, Opaque) and dtype.arguments else None
    state = dtype.state.items if isinstance(dtype, Opaque) and isinstance(dtype.state, Sequence) else ()
    order = state[1] if len(state) > 1 else None
    named = isinstance(dtype, Opaque) and dtype.class_name == "numpy.dtype"
    if not named or not isinstance(code, str) or not code[1:].isdigit() or order not in ("<", ">", "|", None):
        raise NotPlainError("it holds a NumPy value of an unknown kind")
    width = int(code[1:]) * (4 if code[0] == "U" else 1)
    fields = _fields(state) if code[0] == "V" else ()
    return Element(code, width, str(order), _unit(state) if code[0] == "M" else None, fields)


def _unit(state: tuple[Node, ...]) -> tuple[str, int] | None:
    """Return (name, count) of a datetime64: the last of its state is (…, (b"D", 1, 1, 1))."""
    last = state[8] if len(state) > 8 else None
    given = last.items[1] if isinstance(last, Sequence) and len(last.items) > 1 else None
    name, count = given.items[:2] if isinstance(given, Sequence) and len(given.items) > 1 else (None, None)
    name = name.decode("ascii", "replace") if isinstance(name, bytes) else name
    return (name, count) if isinstance(name, str) and type(count) is int else None


def _fields(state: tuple[Node, ...]) -> tuple[tuple[str, Element, int], ...]:
    """Return the fields of a structured dtype: its state is (3, "|", None, names, {name: (dtype, offset)}, …)."""
    names, held = state[3:5] if len(state) > 4 else (None, None)
    if not isinstance(names, Sequence) or not isinstance(held, Mapping):
        return ()
    places = dict(held.entries)
    found = []
    for name in names.items:
        place = places.get(name) if isinstance(name, str) else None
        offset = place.items[1] if isinstance(place, Sequence) and len(place.items) > 1 else None
        if not isinstance(name, str) or not isinstance(place, Sequence) or type(offset) is not int:
            raise NotPlainError("it holds a NumPy record of an unknown kind")
        found.append((name, element_of(place.items[0]), offset))
    return tuple(found)


def as_bytes(node: Node) -> bytes:
    """Return bytes as protocol 3 and later write them, or as ``_codecs.encode(text, "latin1")`` does in protocol 2.

    Raises NotPlainError for anything else.
    """
    if isinstance(node, bytes):
        return node
    if isinstance(node, str):  # of Python 2, where bytes were text
        return node.encode("utf-8", "surrogatepass")
    if isinstance(node, Opaque) and node.class_name == "_codecs.encode" and len(node.arguments) == 2:
        text, encoding = node.arguments
        if isinstance(text, str) and encoding in ("latin1", "latin-1"):
            return text.encode("latin-1", "replace")
    raise NotPlainError("it holds bytes that were not written in the usual way")


def number(node: Opaque) -> object:
    """Return what ``scalar(dtype, bytes)`` makes, in Python. Raises NotPlainError."""
    if len(node.arguments) != 2 or node.state is not None or node.items or node.entries:
        raise NotPlainError("its NumPy number was not written in the usual way")
    data = as_bytes(node.arguments[1])
    element = element_of(node.arguments[0])
    if len(data) != element.width:
        raise NotPlainError("its NumPy number was not written in the usual way")
    return values(data, element)[0]


def listed(array: Array) -> object:
    """Return the elements of an array as lists in lists, as many as it has dimensions. Raises NotPlainError."""
    if isinstance(array.contents, Sequence):
        raise NotPlainError("it holds an array of objects")
    return nested(array, values(array.contents, array.element))


def nested(array: Array, flat: list[object]) -> object:
    """Return these elements as lists in lists.

    Raises NotPlainError for a shape that these cannot show, and for too many.
    """
    if len(flat) > _LISTED:
        raise NotPlainError(f"it holds an array of {len(flat):,} elements, which are too many for a list")
    if not flat and len(array.shape) > 1:
        raise NotPlainError(f"it holds an array of the shape {array.shape}, which lists cannot show")
    order = range(len(array.shape)) if array.fortran else range(len(array.shape) - 1, -1, -1)
    strides, step = [0] * len(array.shape), 1
    for axis in order:
        strides[axis], step = step, step * array.shape[axis]

    def level(axis: int, at: int) -> object:
        if axis == len(array.shape):
            return flat[at]
        return [level(axis + 1, at + index * strides[axis]) for index in range(array.shape[axis])]

    return level(0, 0)


def values(data: bytes, element: Element) -> list[object]:
    """Return each element in Python: numbers, text, bytes, ISO text of a time, a dict of fields.

    Raises NotPlainError.
    """
    code, width = element.code, element.width
    order = ">" if element.swapped else "<"
    if not width:
        raise NotPlainError("it holds NumPy values without any bytes")
    if code in _NUMBERS:
        return list(struct.unpack(f"{order}{len(data) // width}{_NUMBERS[code]}", data))
    if code in _COMPLEX:
        parts = struct.unpack(f"{order}{2 * len(data) // width}{_COMPLEX[code]}", data)
        return [complex(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    each = [data[at : at + width] for at in range(0, len(data), width)]
    if code[0] == "S":
        return [value.rstrip(b"\0") for value in each]
    if code[0] == "U":
        return [_text(value, element.swapped) for value in each]
    if code[0] == "M":
        return [
            _time(int.from_bytes(value, "big" if element.swapped else "little", signed=True), element.unit)
            for value in each
        ]
    if element.fields:
        return [_record(value, element) for value in each]
    if code[0] in "fc":  # float128: 80 bits of Intel's, 128 of IEEE's or two doubles, and the pickle does not say which
        raise NotPlainError(f"it holds {element.called} of NumPy, whose format differs between machines")
    raise NotPlainError(f"it holds {element.called} of NumPy, for which there is no plain value")


def _text(data: bytes, swapped: bool) -> str:
    try:
        return data.decode("utf-32-be" if swapped else "utf-32-le", "surrogatepass").rstrip("\0")
    except UnicodeDecodeError as error:
        raise NotPlainError("it holds a damaged NumPy string") from error


def _record(data: bytes, element: Element) -> dict[str, object]:
    found = {}
    for name, field, offset in element.fields:
        part = data[offset : offset + field.width]
        if offset < 0 or len(part) != field.width or not field.width:
            raise NotPlainError("it holds a NumPy record of an unknown kind")
        found[name] = values(part, field)[0]
    return found


def _time(count: int, unit: tuple[str, int] | None) -> str:
    """Return the ISO text of a datetime64, as exact as its unit.

    Raises NotPlainError outside of the years 1 to 9999.
    """
    if count == _NOT_A_TIME:
        return "NaT"
    name, step = unit if unit is not None else ("", 1)
    count *= step
    if name in ("Y", "M"):
        year, month = divmod(count + 1970 * 12, 12) if name == "M" else (count + 1970, 0)
        _require_year(1 <= year <= 9999)
        return f"{year:04}" + (f"-{month + 1:02}" if name == "M" else "")
    digits = _DIGITS.get(name, 0)
    if name in ("W", "D"):
        days, rest = count * (7 if name == "W" else 1), 0
    elif digits or name in _PER_DAY:
        days, rest = divmod(count, _PER_DAY.get(name, 86400 * 10**digits))
    else:
        raise NotPlainError("it holds a NumPy datetime64 without a unit")
    from datetime import date

    _require_year(1 <= days + _EPOCH <= date.max.toordinal())
    day = date.fromordinal(days + _EPOCH).isoformat()
    return day if name in ("W", "D") else f"{day}T{_clock(rest, name, digits)}"


def _require_year(known: bool) -> None:
    if not known:
        raise NotPlainError("it holds a NumPy datetime64 outside of the years 1 to 9999")


def _clock(count: int, unit: str, digits: int) -> str:
    """Return a time of day, as exact as its unit."""
    seconds, fraction = divmod(count, 10**digits)
    seconds *= 86400 // _PER_DAY.get(unit, 86400)
    numbers = (seconds // 3600, seconds // 60 % 60, seconds % 60)[: _CLOCK.get(unit, 3)]
    return ":".join([f"{each:02}" for each in numbers]) + (f".{fraction:0{digits}}" if digits else "")


# ---- arrays that a pickle spells out whole, as the tensors with the same elements


@noun
class Held:
    """The elements of an array, and their order."""

    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    values: bytes


def held_values(node: Node) -> Held | None:
    """Return what an array holds.

    It is None for anything else, and where torch has no such elements or they do not fit it.
    """
    array = array_of(node)
    name = NUMPY_ELEMENTS.get(array.element.code) if array is not None else None
    if array is None or name is None or not isinstance(array.contents, bytes):
        return None
    dtype, shape = BY_NAME[name], array.shape
    values = little_endian(array.contents, dtype) if array.element.swapped else array.contents
    stride = contiguous_stride(shape[::-1])[::-1] if array.fortran else contiguous_stride(shape)
    return Held(dtype, shape, stride, values)


# ---- strings of Python 2, of which protocol 2 and those before it know nothing but bytes

_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray")
BYTES = ("b'", 'b"')  # how a key of bytes is spelt (formats.torch.read.objects)


def of_python_2(checkpoint: Checkpoint) -> bool:
    """Return whether bytes in the tree are strings of Python 2."""
    protocol = pickle_protocol(checkpoint.container)
    return protocol in (0, 1, 2) and all(each.full != "_codecs.encode" for each in checkpoint.globals)


def array_values(node: Opaque) -> bytes | None:
    """Return the values of a NumPy array or number that Python 2 wrote as a string, or None for anything else."""
    module, _, name = node.class_name.rpartition(".")
    if module not in _NUMPY:
        return None
    held: tuple[Node, ...] = ()
    if name == "scalar":
        held = node.arguments if len(node.arguments) == 2 else ()
    elif name == "_reconstruct" and isinstance(node.state, Sequence) and len(node.state.items) == 5:
        held = node.state.items
    value = held[-1] if held else None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return value if isinstance(value, bytes) else None
