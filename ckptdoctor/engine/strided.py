"""The elements of a view in C order, straight from the file, whatever its strides are."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from itertools import product
from typing import Literal

from ckptdoctor.checkpoint import Extent, Tensor
from ckptdoctor.errors import RefusedError

_CODES: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}


def rows(tensor: Tensor, extent: Extent) -> Iterator[bytes]:
    """The bytes of one innermost row after another; ``extent`` is where the tensor's storage lies.

    Raises RefusedError for elements that are not whole bytes.
    """
    width, rest = divmod(tensor.dtype.bits, 8)
    if rest:
        raise RefusedError(f"Elements of {tensor.dtype.name} are not whole bytes, and cannot be put in another order.")
    if 0 in tensor.shape:
        return
    with open(extent.file, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        *outer, (count, step) = list(zip(tensor.shape, tensor.stride, strict=True)) or [(1, 1)]
        for index in product(*(range(size) for size, _ in outer)):
            shift = sum(place * stride for place, (_, stride) in zip(index, outer, strict=True))
            begin = extent.offset + (tensor.offset + shift) * width
            yield _row(data, begin, width, count, step)


def _row(data: mmap.mmap, begin: int, width: int, count: int, step: int) -> bytes:
    """``count`` elements of ``width`` bytes, each ``step`` elements after the one before."""
    if step == 0:
        return data[begin : begin + width] * count
    if step == 1:
        return data[begin : begin + count * width]
    code = _CODES.get(width)
    if code is None:
        return b"".join([data[at : at + width] for at in range(begin, begin + count * step * width, step * width)])
    end = begin + ((count - 1) * step + 1) * width
    with memoryview(data) as whole, whole[begin:end] as span, span.cast(code) as elements, elements[::step] as picked:
        return picked.tobytes()
