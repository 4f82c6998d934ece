"""Reads what an array of NumPy is: its element type, order and shape; and says it in the nouns of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from ckptdoctor.checkpoint import DType, KeyPath, Note, NoteKind, Opaque, Sequence, Storage, Tensor, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.errors import DamagedError, TruncatedError
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex
from ckptdoctor.wording import and_more, plural

# kind and bytes of one element, as in numpy.dtype.str without its byte order
_TYPES = {
    "f8": "float64",
    "f4": "float32",
    "f2": "float16",
    "c16": "complex128",
    "c8": "complex64",
    "b1": "bool",
    "?": "bool",
    **{f"i{size}": f"int{8 * size}" for size in (1, 2, 4, 8)},
    **{f"u{size}": f"uint{8 * size}" for size in (1, 2, 4, 8)},
}
_CODE = regex(r"([<>|=]?)(\?|[a-zA-Z][0-9]{0,9})")


class Element(NamedTuple):
    """An element type that torch has too, and whether its byte order is the reverse of torch's."""

    dtype: DType
    big: bool


def element(code: str, order: str = "") -> Element | None:
    """Return what ``<f4`` is to torch, or None for text, objects, dates and everything else that torch has no type for.

    ``order`` is the byte order where the code does not begin with it.
    """
    found = _CODE.fullmatch(code)
    if found is None or found[2] not in _TYPES:
        return None
    dtype = BY_NAME[_TYPES[found[2]]]
    return Element(dtype, (found[1] or order) == ">" and dtype.bits > 8)


# ---- the header of NumPy's own format, read with expressions instead of ``eval``
#
# Source: ``numpy.lib.format``. A header is a Python dict as text, padded so that the values begin at a multiple of 64
# bytes (16 before NumPy 1.14).


MAGIC = b"\x93NUMPY"

# magic, version and length of the header
PREFIX = 12
MAX_HEADER_BYTES = 1 << 20

# what the code of an array of structures is called
STRUCTURE = "a structure"

_LENGTH_BYTES = {1: 2, 2: 4, 3: 4}
_MOST_DIMENSIONS = 64  # NumPy 2 handles as many, and so does torch
_MAX_COUNT = (1 << 63) - 1

_DESCRIPTION = regex(r"""['"]descr['"]\s*:\s*(?:'([^'\\]*)'|"([^"\\]*)"|([\[(]))""")
# an element type of Python objects (O, object, f4,O); and in a structure, where names of fields may look like one
_OBJECTS = regex(r".*(?:O|object)")
_FIELD_OF_OBJECTS = regex(
    r"""(?:,\s*['"][^'"]*(?:O|object)[^'"]*['"]|\(\s*['"][^'"]*(?:O|object)[^'"]*['"]\s*,\s*\(?\s*\d)"""
)
_ORDER = regex(r"""['"]fortran_order['"]\s*:\s*(True|False)""")
_SHAPE = regex(r"""['"]shape['"]\s*:\s*\(([0-9L,\s]*)\)""")


@noun
class Header:
    """An array as its header describes it; its values begin at byte ``size``.

    ``element`` is None for what torch has no type for, which ``code`` then names. The values of ``objects`` are a
    pickle.
    """

    code: str
    element: Element | None
    fortran: bool
    shape: tuple[int, ...]
    size: int
    objects: bool = False

    @property
    def stride(self) -> tuple[int, ...]:
        """The strides of the values, in elements."""
        return contiguous_stride(self.shape[::-1])[::-1] if self.fortran else contiguous_stride(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the values; 0 where the size of an element is not known."""
        return prod(self.shape) * (self.element.dtype.bits // 8) if self.element is not None else 0


def header_size(prefix: bytes) -> int:
    """Return how long the header is that begins with these bytes. Raises DamagedError for what begins with none."""
    if len(prefix) < PREFIX:
        raise TruncatedError("The array ends within its header.", offset=len(prefix))
    width = _LENGTH_BYTES.get(prefix[6])
    if not prefix.startswith(MAGIC) or width is None:
        raise DamagedError("This does not begin like a NumPy array (versions 1 to 3).", offset=0)
    length = int.from_bytes(prefix[8 : 8 + width], "little")
    if length > MAX_HEADER_BYTES:
        raise DamagedError(f"The header of the array claims to be {plural(length, 'byte')} long.", offset=8)
    return 8 + width + length


def parse(data: bytes) -> Header:
    """Return the header that ``data`` begins with. Raises DamagedError when it is invalid."""
    size = header_size(data[:PREFIX])
    if len(data) < size:
        raise TruncatedError("The array ends within its header.", offset=len(data))
    text = data[8 + _LENGTH_BYTES[data[6]] : size].decode("utf-8" if data[6] == 3 else "latin1", "replace")
    description, order, shape = _DESCRIPTION.search(text), _ORDER.search(text), _SHAPE.search(text)
    if description is None or order is None or shape is None:
        raise DamagedError("The header of the array does not give its type, order and shape.", offset=8)
    code = STRUCTURE if description[3] else description[1] or description[2] or ""
    objects = _FIELD_OF_OBJECTS.search(text, description.start(3)) if description[3] else _OBJECTS.match(code)
    made = Header(code, element(code), order[1] == "True", _shape(shape[1]), size, objects is not None)
    if made.nbytes > _MAX_COUNT:
        raise DamagedError("The array has more bytes than 64 bits can count.", offset=8)
    return made


def _shape(text: str) -> tuple[int, ...]:
    sizes = [word.strip().rstrip("L") for word in text.split(",") if word.strip()]
    if len(sizes) > _MOST_DIMENSIONS or not all(word.isdigit() and len(word) < 20 for word in sizes):
        raise DamagedError("The shape of the array is impossible.", offset=8)
    found = tuple(map(int, sizes))
    if any(size > _MAX_COUNT for size in found):
        raise DamagedError("The array has more elements than 64 bits can count.", offset=8)
    return found


# ---- arrays as the nouns of a checkpoint: tensors, or records of what torch has no type for


REBUILD = "numpy.ndarray"

# arrays that one note names
_NAMED = 3


def tensor(path: KeyPath, header: Header, storage: Storage, offset: int) -> Tensor:
    """Return an array of numbers; ``offset`` is where in the storage its values begin, in elements."""
    assert header.element is not None
    return Tensor(path, header.element.dtype, header.shape, header.stride, storage, offset, rebuild=REBUILD)


def opaque(header: Header) -> Opaque:
    """Return an array that is shown but not read."""
    return Opaque(REBUILD, (Sequence("tuple", header.shape), header.code))


def reason(code: str) -> str:
    """Return why an array of this type is not a tensor, for ``left_out``."""
    return "arrays of Python objects, which are pickled" if "O" in code else f"arrays of {code or 'nothing'}"


def left_out(reasons: Mapping[str, list[KeyPath]], member: str | None = None) -> list[Note]:
    """Return notes on arrays that are not read, one for each reason: "arrays of <U3"."""
    notes = []
    for why, paths in reasons.items():
        named = and_more(paths, _NAMED, say=show_path)
        notes.append(Note(NoteKind.NOT_EXAMINED, f"{why}: {named}", member))
    return notes


BIG_ENDIAN = "the values were written in big-endian byte order; they are swapped when they are loaded"
OTHER_ORDER = "both big-endian arrays and others"
