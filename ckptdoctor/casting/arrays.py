"""Arrays of numbers of every dtype. Those that NumPy lacks are held as the integers that their bits are.

bfloat16 and float16 are held as ``uint16``: NumPy converts its own float16 ten times as slowly as integers are shifted.
Floats of 8 bits and bool are held as ``uint8``. Everything that computes with them widens them first, exactly.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ckptdoctor.noun import noun

Array = np.ndarray[Any, Any]

# Each piece of numbers that is computed with needs arrays of its own. glibc returns what is free at the end of its
# memory to the system once that is twice the largest block that was ever freed (M_MMAP_THRESHOLD in mallopt(3)), and
# the system clears each page again for the next piece, which may take as long as all the rest. One block of this size,
# freed at once and never touched, has it keep as much.
_KEPT = 8 << 20
np.empty(_KEPT, np.uint8)

# integers, and what float32 holds of them exactly
NARROW_INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "bool"})
HALVES = frozenset({"bfloat16", "float16"})
_HELD = {"bfloat16": "u2", "float16": "u2", "complex32": "u4", "bool": "u1"}
_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}


def held_as(dtype: str) -> np.dtype[Any]:
    """Return the element type of arrays that hold numbers of this dtype. Raises TypeError for a packed one."""
    return np.dtype("u1" if dtype.startswith("float8") else _HELD.get(dtype, dtype))


def array_of(data: bytes | bytearray | memoryview, dtype: str) -> Array:
    """Return the numbers that these little-endian bytes are."""
    return np.frombuffer(data, held_as(dtype))


_LINE = 64  # bytes of a line of the cache


def room(count: int, dtype: str) -> Array:
    """Memory for so many elements that begins with a line of the cache: sums of products there take a third less time.

    Their order is then the same in every run, too, for a BLAS that adds up what comes before the first line apart.
    """
    kind = np.dtype(dtype)
    raw = np.empty(count * kind.itemsize + _LINE, np.uint8)
    start = -raw.__array_interface__["data"][0] % _LINE
    return raw[start : start + count * kind.itemsize].view(kind)


def real_dtype(dtype: str) -> str:
    """Return the dtype itself, or of a complex one that of its two parts."""
    return _PARTS.get(dtype, dtype)


def real_parts(values: Array, dtype: str) -> Array:
    """Return contiguous numbers, each complex one as two real ones."""
    return values.view(held_as(_PARTS[dtype])) if dtype in _PARTS else values


def is_narrow(dtype: str) -> bool:
    """Return whether float32 holds every number of a real dtype."""
    return dtype == "float32" or dtype in HALVES or dtype in NARROW_INTEGERS or dtype.startswith("float8")


def widened(values: Array, dtype: str) -> Array:
    """Return the numbers as float32 where that holds all of the dtype, else as float64.

    NaN keeps what float32 has room for.

    Those that are floats of this width already are not copied.
    """
    if dtype in ("float32", "float64"):
        return values
    if dtype in HALVES:
        made: Array = widened_into(values.reshape(-1), dtype, np.empty(values.size, np.float32)).reshape(values.shape)
        return made
    if dtype.startswith("float8"):
        return np.take(every_float8(dtype), values)
    return values.astype(np.float32 if dtype in NARROW_INTEGERS else np.float64)


def widened_into(values: Array, dtype: str, out: Array, *, finite: bool = False) -> Array:
    """Fill the first numbers of ``out`` with the same, much faster: float32 or float64 as ``widened`` has it.

    ``finite``: that all of them are is known.
    """
    if dtype in ("float32", "float64"):
        return values
    out = out[: values.size]
    if dtype == "bfloat16":  # the upper half of a float32
        bits = out.view(np.uint32)
        np.copyto(bits, values)
        bits <<= 16
        return out
    if dtype == "float16" and (finite or not has_float16_beyond(values)):
        # the exponent is 112 too small where that of a float32 is; subnormal numbers are so in both
        signed = out.view(np.int32)
        np.copyto(signed, values.view(np.int16))
        signed <<= 13
        signed &= -0x70002000  # all but the copies of the sign
        out *= np.float32(2.0**112)
        return out
    if dtype == "float16" or dtype.startswith("float8"):
        np.take(_every_float16() if dtype == "float16" else every_float8(dtype), values, out=out, mode="clip")
    else:
        np.copyto(out, values)
    return out


def has_float16_beyond(values: Array) -> bool:
    """Return whether any of these is NaN or infinite."""
    return bool((values & np.uint16(0x7C00)).max(initial=0) == 0x7C00)


@cache
def _every_float16() -> Array:
    """Return the float32 of each of the 65,536; NaNs are quiet, as the processor makes them."""
    made = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    made.view(np.uint32)[np.isnan(made)] |= 0x400000
    return made


@noun
class _Float8:
    """How the 8 bits are shared out, and which of the numbers are none, as torch 2.13 has it (c10/util/Float8_*.h).

    ``nan`` are bytes, and the bits of the float32 that each becomes. ``most`` is what too large numbers become: the
    largest one, infinity, or NaN, which is what -0 would be where there is no other.
    """

    exponent: int
    mantissa: int
    bias: int
    nan: tuple[tuple[int, int], ...]
    most: int


FLOAT8 = {
    "float8_e4m3fn": _Float8(4, 3, 7, ((0x7F, 0x7FF00000), (0xFF, 0xFFF00000)), 0x7E),
    "float8_e4m3fnuz": _Float8(4, 3, 8, ((0x80, 0x7F800001),), 0x80),
    "float8_e5m2": _Float8(5, 2, 15, (
        (0x7D, 0x7FE00000), (0x7E, 0x7FC00000), (0x7F, 0x7FE00000),
        (0xFD, 0xFFE00000), (0xFE, 0xFFC00000), (0xFF, 0xFFE00000),
    ), 0x7C),
    "float8_e5m2fnuz": _Float8(5, 2, 16, ((0x80, 0x7F800001),), 0x80),
}  # fmt: skip


@cache
def every_float8(dtype: str) -> Array:
    """Return the float32 of each of the 256 numbers of a float8."""
    if dtype == "float8_e8m0fnu":  # powers of two, and one NaN
        return np.array([*[2.0 ** (byte - 127) for byte in range(255)], np.nan], np.float32)
    kind = FLOAT8[dtype]
    made = np.array([_float8(kind, byte) for byte in range(256)], np.float32)
    for byte, bits in kind.nan:
        made.view(np.uint32)[byte] = bits
    return made


def _float8(kind: _Float8, byte: int) -> float:
    sign = -1.0 if byte & 0x80 else 1.0
    power, rest = (byte & 0x7F) >> kind.mantissa, byte & ((1 << kind.mantissa) - 1)
    if kind.most == 0x7C and power == (1 << kind.exponent) - 1:
        return sign * float("inf")  # those that are NaN are put in afterwards
    whole = rest + ((1 << kind.mantissa) if power else 0)
    return float(sign * whole * 2.0 ** (max(power, 1) - kind.bias - kind.mantissa))
