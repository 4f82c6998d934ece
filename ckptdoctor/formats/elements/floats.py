"""Turns elements of float tensors into Python's numbers and back, each rounded once: to the nearest, ties to even."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from math import copysign, inf

_WIDTHS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_FULL = 0xFF
_TIE = 0x8000  # the lower half of a float32 that lies half way between two numbers of bfloat16


def width(dtype: str) -> int:
    """Return how many bytes one number takes."""
    return _WIDTHS[dtype]


def decoded(data: bytes, dtype: str) -> Sequence[float]:
    """Return the numbers that these little-endian bytes are."""
    if dtype == "float16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    if dtype == "bfloat16":
        return _native("f", _widened(data))
    return _native("d" if dtype == "float64" else "f", data)


def _native(code: str, data: bytes | bytearray) -> array[float]:
    found: array[float] = array(code)
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _widened(data: bytes) -> bytearray:
    """Return bfloat16 as float32: its two bytes are the upper ones."""
    made = bytearray(2 * len(data))
    made[2::4], made[3::4] = data[0::2], data[1::2]
    return made


def encoded(values: Iterable[float], dtype: str) -> bytes:
    """Return the little-endian bytes of these numbers; too large ones become infinite."""
    if dtype == "float16":
        return _halves(list(values))
    if dtype == "bfloat16":
        return _upper_halves(list(values))
    made: array[float] = array("d" if dtype == "float64" else "f", values)
    if sys.byteorder == "big":
        made.byteswap()
    return made.tobytes()


def _halves(values: list[float]) -> bytes:
    try:
        return struct.pack(f"<{len(values)}e", *values)
    except OverflowError:
        return b"".join([_half(value) for value in values])


def _half(value: float) -> bytes:
    try:
        return struct.pack("<e", value)
    except OverflowError:
        return struct.pack("<e", copysign(inf, value))


def _upper_halves(values: list[float]) -> bytes:
    """Return all at once: as one large number, in which no sum reaches from one number into the next."""
    near: array[float] = array("f", values)
    if sys.byteorder == "big":
        near.byteswap()
    data = near.tobytes()
    if _FULL in data[3::4]:  # a sum could: NaNs with every bit set
        return b"".join([_upper_half(value) for value in values])
    every = int.from_bytes(b"\1\0\0\0" * len(values), "little")
    whole = int.from_bytes(data, "little")
    rounded = whole + 0x7FFF * every + (whole >> 16 & every)
    made = bytearray(2 * len(values))
    there = rounded.to_bytes(len(data), "little")
    made[0::2], made[1::2] = there[2::4], there[3::4]
    for index in _ties(data[0::4], data[1::4]):  # where a float64 may be above or below what is a tie only as a float32
        made[2 * index : 2 * index + 2] = _upper_half(values[index])
    return bytes(made)


def _ties(low: bytes, high: bytes) -> Iterator[int]:
    """Yield the numbers of which the lower half is 0x8000."""
    at = high.find(_TIE >> 8)
    while at >= 0:
        if not low[at]:
            yield at
        at = high.find(_TIE >> 8, at + 1)


def _upper_half(value: float) -> bytes:
    """Return one number rounded to bfloat16."""
    (near,) = array("f", [value])
    (bits,) = struct.unpack("<I", struct.pack("<f", near))
    if near != near:
        return struct.pack("<H", bits >> 16 | 0x40)
    up = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    if bits & 0xFFFF == _TIE and abs(value) != abs(near):
        up = (bits >> 16) + (abs(value) > abs(near))
    return struct.pack("<H", up)
