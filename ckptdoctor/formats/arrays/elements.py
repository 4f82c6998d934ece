"""The element types of NumPy as those of torch."""

from __future__ import annotations

from typing import NamedTuple

from ckptdoctor.checkpoint import DType
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.regex import regex

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
    """An element type that torch has too, and whether its bytes stand the other way round than torch wants them."""

    dtype: DType
    big: bool


def element(code: str, order: str = "") -> Element | None:
    """What ``<f4`` is to torch; None for text, objects, dates and everything else that torch has no type for.

    ``order`` is the byte order where the code does not begin with it.
    """
    found = _CODE.fullmatch(code)
    if found is None or found[2] not in _TYPES:
        return None
    dtype = BY_NAME[_TYPES[found[2]]]
    return Element(dtype, (found[1] or order) == ">" and dtype.bits > 8)
