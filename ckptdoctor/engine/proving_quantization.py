"""Holds weights that were computed of quantised ones against a computation of its own.

Nothing that computed them is used: the number of each code is worked out from its bits, the scale of each number from
its index, and every weight must be the product that these give, or the number next to it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import copysign, inf, isfinite, nan, prod

from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.edits.elements import Dequantized, Elements
from ckptdoctor.edits.quantization import AFFINE, FOUR, INT8, state_of
from ckptdoctor.errors import WriteError
from ckptdoctor.formats.floats import decoded, encoded

_PIECE = 1 << 16  # numbers that are compared at once

Read = Callable[[int, int], bytes]  # (first byte, length)
Chunks = Callable[[Elements], Iterator[bytes]]


def insist_on_dequantized(weights: Dequantized, chunks: Chunks, read: Read) -> None:
    """Raises WriteError unless ``read`` gives the bytes of the weights; ``chunks`` gives those of their parts."""
    total = prod(weights.shape)
    if not total:
        return
    four = weights.scheme == FOUR
    scales, zeros = _four(weights, chunks) if four else _scales(weights, chunks)
    block = _blocksize(weights, chunks) if four else 0
    values = _numbers(weights.parts[2], "float32", chunks) if four else [_number(b, weights.kinds[0]) for b in range(256)]
    at = 0
    for data in chunks(weights.parts[0]):
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            codes = [half for byte in piece for half in (byte >> 4, byte & 15)] if four else list(piece)
            del codes[total - at :]
            places = [place // block for place in range(at, at + len(codes))] if four else _places(weights, at, len(codes))
            made = _products(weights, [values[code] for code in codes], places, scales, zeros)
            there = read(at * weights.width, len(codes) * weights.width)
            if not _near(encoded(made, weights.dtype), there, weights.dtype):
                raise WriteError("A weight of the output is not what its scale gives; it was thrown away.")
            at += len(codes)


def _products(
    weights: Dequantized,
    values: Sequence[float],
    places: Sequence[int],
    scales: Sequence[float],
    zeros: Sequence[float] | None,
) -> list[float]:
    if zeros is not None:
        return [(one - zeros[at]) * scales[at] for one, at in zip(values, places, strict=True)]
    if weights.scheme == INT8:
        return [one * scales[at] / 127 for one, at in zip(values, places, strict=True)]
    return [one * scales[at] for one, at in zip(values, places, strict=True)]


def _places(weights: Dequantized, at: int, length: int) -> Sequence[int]:
    """The scale of each number from ``at`` on."""
    _, columns, high, wide = weights.runs
    count = 1 if len(weights.parts) == 1 else prod(weights.parts[1].shape)
    if count == 1:
        return bytes(length)
    across = (columns + wide - 1) // wide
    return [
        (place // columns // high * across + place % columns // wide) % count for place in range(at, at + length)
    ]


def _scales(weights: Dequantized, chunks: Chunks) -> tuple[Sequence[float], Sequence[float] | None]:
    if weights.scheme == AFFINE and len(weights.parts) == 1:
        return [weights.affine[0]], [weights.affine[1]]
    scales = _numbers(weights.parts[1], weights.kinds[1], chunks)
    return scales, _numbers(weights.parts[2], weights.kinds[2], chunks) if weights.scheme == AFFINE else None


def _four(weights: Dequantized, chunks: Chunks) -> tuple[Sequence[float], None]:
    """The scales of a weight of bitsandbytes, those that are quantised themselves too."""
    absmax = weights.parts[1]
    if len(weights.parts) == 4:
        return _numbers(absmax, "float32", chunks), None
    outer, values = (_numbers(part, "float32", chunks) for part in weights.parts[4:])
    _, size, offset = _state(weights, chunks)
    codes = b"".join(chunks(absmax))
    return array("d", [values[code] * outer[place // size] + offset for place, code in enumerate(codes)]), None


def _blocksize(weights: Dequantized, chunks: Chunks) -> int:
    return _state(weights, chunks)[0]


def _state(weights: Dequantized, chunks: Chunks) -> tuple[int, int, float]:
    nested = prod(weights.parts[4].shape) if len(weights.parts) > 4 else 0
    return state_of(b"".join(chunks(weights.parts[3])), weights.shape, prod(weights.parts[1].shape), nested)


def _numbers(part: Elements, dtype: str, chunks: Chunks) -> Sequence[float]:
    data = b"".join(chunks(part))
    if dtype == "int64":
        return [float(each) for (each,) in struct.iter_unpack("<q", data)]
    return [_number(byte, dtype) for byte in data] if BY_NAME[dtype].bits == 8 else decoded(data, dtype)


def _number(byte: int, dtype: str) -> float:
    """What a code of eight bits stands for, from its bits."""
    kind = BY_NAME[dtype]
    if kind.kind != "float":
        signed = kind.name in ("int8", "qint8")
        return float(int.from_bytes(bytes([byte]), "little", signed=signed))
    if not kind.mantissa:
        return nan if byte == 255 else float(Fraction(2) ** (byte - 127))
    bits = f"{byte:08b}"
    sign, exponent, rest = bits[0], int(bits[1 : 1 + kind.exponent], 2), int(bits[1 + kind.exponent :], 2)
    unsigned_zero, last = dtype.endswith("fnuz"), exponent == 2**kind.exponent - 1
    if unsigned_zero and bits == "10000000":
        return nan
    if dtype == "float8_e5m2" and last:
        return nan if rest else copysign(inf, -1 if sign == "1" else 1)
    if dtype == "float8_e4m3fn" and last and rest == 7:
        return nan
    bias = 2 ** (kind.exponent - 1) - 1 + unsigned_zero
    part = Fraction(rest, 2**kind.mantissa) + (exponent > 0)
    found = float(part * Fraction(2) ** (max(exponent, 1) - bias))
    return -found if sign == "1" else found


def _near(made: bytes, there: bytes, dtype: str) -> bool:
    """Whether these are the same numbers, each or the one next to it."""
    if made == there:
        return True
    kind = BY_NAME[dtype]
    least = 2.0 ** (2 - 2 ** (kind.exponent - 1) - kind.mantissa)  # the smallest number above 0
    near = max(2.0**-kind.mantissa, 2.0**-44)
    ours, theirs = decoded(made, dtype), decoded(there, dtype)
    return len(ours) == len(theirs) and all(
        one == other or abs(one - other) <= max(abs(one) * near, least) or (not isfinite(one) and not isfinite(other))
        for one, other in zip(ours, theirs, strict=True)
    )
