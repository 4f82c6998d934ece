"""Casts numbers as ``Tensor.to`` does: to the nearest one, ties to even, too large ones to infinity.

float64 becomes bfloat16 or float16 by way of float32, as in torch. Which NaN a NaN becomes in bfloat16 depends on the
processor in torch; here it always keeps its sign and the upper bits of its payload, as float16 does there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ckptdoctor.casting.arrays import HALVES, Array, array_of, held_as, widened

_PIECE = 1 << 17  # numbers that are cast at once: they stay in the cache


def in_pieces(chunks: Iterable[bytes], width: int) -> Iterator[bytes]:
    """The same bytes in pieces of whole numbers of ``width`` bytes each."""
    size, left = _PIECE * width, b""
    for chunk in chunks:
        data = left + chunk if left else chunk
        whole = len(data) - len(data) % width
        yield from (data[at : min(at + size, whole)] for at in range(0, whole, size))
        left = data[whole:]
    if left:
        raise ValueError(f"{len(left)} bytes are left over at the end of numbers of {width} bytes")


def cast(data: bytes, source: str, target: str) -> bytes:
    """The bytes of these numbers of the dtype ``source`` in the dtype ``target``."""
    return cast_array(array_of(data, source), source, target).tobytes()


def cast_array(given: Array, source: str, target: str) -> Array:
    """The same of an array: what it holds is the dtype ``source``, and what the result holds ``target``."""
    with np.errstate(all="ignore"):  # overflow gives infinity, as it should
        wide = widened(given, source)
        if target not in HALVES:
            return wide.astype(held_as(target), copy=False)
        single = wide.astype(np.float32, copy=False)
        made = _upper_halves(single) if target == "bfloat16" else single.astype(np.float16).view(np.uint16)
        _set_nans(single, made, source, target)
        return made


def _upper_halves(single: Array) -> Array:
    """bfloat16 is the upper half of a float32, rounded."""
    bits = single.view(np.uint32)
    odd = bits >> 16
    odd &= 1
    odd += 0x7FFF
    odd += bits  # NaN may overflow here, and is set afterwards
    odd >>= 16
    return odd.astype(np.uint16)


def _set_nans(single: Array, made: Array, source: str, target: str) -> None:
    """NaNs keep their sign and the upper bits of their payload, and are quiet."""
    places = np.flatnonzero(np.isnan(single))
    if not places.size:
        return
    bits = single.view(np.uint32)[places]
    if target == "float16":
        made[places] = (bits >> 16 & 0x8000) | (bits >> 13 & 0x3FF) | 0x7E00
    else:
        made[places] = 0x7FC0 if source.startswith("float8") else bits >> 16 | 0x40  # as torch has it
