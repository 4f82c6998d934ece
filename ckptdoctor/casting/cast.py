"""Casts numbers as ``Tensor.to`` does: to the nearest one, ties to even, too large ones to infinity.

float64 becomes bfloat16 or float16 by way of float32, as in torch. Which NaN a NaN becomes in bfloat16 depends on the
processor in torch; here it always keeps its sign and the upper bits of its payload, as float16 does there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ckptdoctor.casting.arrays import FLOAT8, HALVES, Array, array_of, held_as, widened

_PIECE = 1 << 17  # numbers that are cast at once: they stay in the cache


def in_pieces(chunks: Iterable[bytes | memoryview], width: int, most: int = _PIECE) -> Iterator[bytes | memoryview]:
    """Yield the same bytes in pieces of whole numbers of ``width`` bytes each, ``most`` of them at once."""
    size, left = most * width, b""
    for chunk in chunks:
        data = left + chunk if left else chunk
        whole = len(data) - len(data) % width
        if 0 < whole <= size:
            yield data if whole == len(data) else data[:whole]
        elif whole:  # seen, and not copied
            view = memoryview(data)
            yield from (view[at : min(at + size, whole)] for at in range(0, whole, size))
        left = bytes(data[whole:])
    if left:
        raise ValueError(f"{len(left)} bytes are left over at the end of numbers of {width} bytes")


def cast(data: bytes | memoryview, source: str, target: str) -> bytes:
    """Return the bytes of these numbers of the dtype ``source`` in the dtype ``target``."""
    return cast_array(array_of(data, source), source, target).tobytes()


def cast_array(given: Array, source: str, target: str) -> Array:
    """Return the same of an array: what it holds is the dtype ``source``, and what the result holds ``target``."""
    with np.errstate(all="ignore"):  # overflow gives infinity, as it should
        wide = widened(given, source)
        if target.startswith("float8"):
            return _eight_bits(wide.astype(np.float32, copy=False), target)
        if target not in HALVES:
            return wide.astype(held_as(target), copy=False)
        single = wide.astype(np.float32, copy=False)
        made = _upper_halves(single) if target == "bfloat16" else _float16(single)
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


_OVER, _NORMAL = 65520.0, 2.0**-14  # the first that becomes infinite in float16, and its least normal number


def _float16(single: Array) -> Array:
    """float16 is what is left of a float32 with a smaller exponent, rounded: NumPy takes three times as long.

    It is asked where numbers are too large, and for those that are too small for a normal one.
    """
    if not (single.max(initial=0) < _OVER and single.min(initial=0) > -_OVER):  # NaN is not, either
        return single.astype(np.float16).view(np.uint16)
    bits = single.view(np.uint32)
    odd = bits & 0x7FFFFFFF
    small = np.flatnonzero(odd < np.float32(_NORMAL).view(np.uint32))
    if small.size > single.size // 8:
        return single.astype(np.float16).view(np.uint16)
    np.right_shift(bits, 13, out=odd)
    odd &= 1
    odd += np.uint32((0xFFF - (112 << 23)) & 0xFFFFFFFF)  # half of what is lost, almost; the exponent counts from less
    odd += bits
    odd >>= 13
    odd &= 0x7FFF
    made = odd.astype(np.uint16)
    np.right_shift(bits, 16, out=odd)
    made |= odd.astype(np.uint16) & np.uint16(0x8000)
    made[small] = single[small].astype(np.float16).view(np.uint16)
    return made


_HALF_STEPS = {"float16": 1 << 12, "bfloat16": 1 << 15}  # half of the distance of two neighbours, in float32's


def unlike_halves(single: Array, held: Array, wide: Array, dtype: str) -> Array:
    """Return where ``held``, finite numbers of 16 bits, are not what ``single``, finite as well, gives in their dtype.

    ``wide`` are the same as ``held`` in float32, whose bits are in the order of the numbers. What is less than half of
    the distance of two neighbours away from one of them, counted in such bits, is rounded to it; all the more where the
    distances are larger, as those of the smallest float16 are. Only the rest has to be rounded: ties, and the smallest.
    """
    apart = single.view(np.int32) - wide.view(np.int32)
    np.abs(apart, out=apart)
    places: Array = np.flatnonzero(apart.view(np.uint32) >= _HALF_STEPS[dtype])
    if places.size > single.size // 8:
        return np.flatnonzero(cast_array(single, "float32", dtype) != held)
    few = single[places]
    made = few.astype(np.float16).view(np.uint16) if dtype == "float16" else _upper_halves(few)
    left: Array = places[made != held[places]]
    return left


def _set_nans(single: Array, made: Array, source: str, target: str) -> None:
    """NaNs keep their sign and the upper bits of their payload, and are quiet."""
    if not np.isnan(single.max(initial=0)):
        return
    places = np.flatnonzero(np.isnan(single))
    bits = single.view(np.uint32)[places]
    if target == "float16":
        made[places] = (bits >> 16 & 0x8000) | (bits >> 13 & 0x3FF) | 0x7E00
    else:
        made[places] = 0x7FC0 if source.startswith("float8") else bits >> 16 | 0x40  # as torch has it


def _eight_bits(single: Array, target: str) -> Array:
    """Make float8 by way of float32, as torch does (c10/util/Float8_*.h): too large numbers become ``most``."""
    bits = single.view(np.uint32) & 0x7FFFFFFF
    if target == "float8_e8m0fnu":  # a power of two, without sign
        power, rest = bits >> 23, bits & 0x7FFFFF
        up = (rest > 0x400000) | ((rest == 0x400000) & (power > 0))
        return np.where(power == 0xFF, 0xFF, power + up).astype(np.uint8)
    kind = FLOAT8[target]
    sign = (single.view(np.uint32) >> 24 & 0x80).astype(np.uint8)
    lost = 23 - kind.mantissa  # bits of the mantissa that are rounded off
    normal = (bits + ((1 << (lost - 1)) - 1) + (bits >> lost & 1) - ((127 - kind.bias) << 23)) >> lost
    # added to a float of which the last bit is the smallest number of all
    large = np.float32(2.0 ** (24 - kind.bias - kind.mantissa))
    below = (bits.view(np.float32) + large).view(np.uint32) - large.view(np.uint32)
    made = np.minimum(np.where(bits < (128 - kind.bias) << 23, below, normal), kind.most)
    made = np.where(bits > 0x7F800000, 0x7F, made).astype(np.uint8)
    if kind.most != 0x80:
        return made | sign
    return np.where((made >= 0x80) | (bits > 0x7F800000), np.uint8(0x80), np.where(made > 0, made | sign, made))
