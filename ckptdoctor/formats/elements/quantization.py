"""Computes plain weights of quantised ones, piece by piece in float64, each rounded once.

A byte has 256 values at most. Where many bytes share a scale, the products of all of them are worked out once, and the
bytes are only looked up: that is as fast as copying.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, repeat
from math import inf, ldexp, nan, prod
from operator import mul, sub

from ckptdoctor.edits.elements import Dequantized, Elements
from ckptdoctor.edits.quantization import AFFINE, FOUR, INT8, state_of
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.elements.floats import decoded, encoded

_PIECE = 1 << 18  # numbers that are worked on at once
_BLOCK = 4 << 20  # bytes that are read at once
_KEPT = 1 << 12  # tables that are kept
_FEW = 512  # numbers that share a scale, below which a table of 256 is not worth it

# gives the bytes of elements in C order, some at a time, at most about so many
Read = Callable[[Elements, int], Iterator[bytes]]


def dequantized(weights: Dequantized, read: Read) -> Iterator[bytes]:
    """Yield the bytes of the weights."""
    total = prod(weights.shape)
    if not total:
        return
    if weights.scheme == FOUR:
        size, values, scales = _four(weights, read)
        runs = _Runs((1, total, 1, size), total)
        codes = _nibbles(_pieces(weights.parts[0], read, _PIECE // 2), total)
        maker: _Maker = _Maker(values, scales, None, 1.0, weights)
    else:
        runs = _Runs(weights.runs, total)
        codes = _pieces(weights.parts[0], read, _PIECE)
        maker = _Maker(numbers(weights.kinds[0]), *_scales(weights, read), weights)
    at = 0
    for piece in codes:
        yield maker.made(piece, list(runs.of(at, len(piece))))
        at += len(piece)


def _pieces(part: Elements, read: Read, size: int) -> Iterator[bytes]:
    for data in read(part, _BLOCK):
        for start in range(0, len(data), size):
            yield data[start : start + size]


def _all(part: Elements, dtype: str, read: Read) -> Sequence[float]:
    data = b"".join(read(part, _BLOCK))
    if dtype == "int64":
        return array("d", array("q", data))
    return array("d", map(numbers(dtype).__getitem__, data)) if dtype == "float8_e8m0fnu" else decoded(data, dtype)


def _scales(weights: Dequantized, read: Read) -> tuple[Sequence[float], Sequence[float] | None, float]:
    """Return scales, zero points (None: there are none), and what the products are divided by."""
    scale, zero = weights.affine
    if weights.scheme == AFFINE and len(weights.parts) == 1:
        return [scale], [zero], 1.0
    scales = _all(weights.parts[1], weights.kinds[1], read)
    if weights.scheme == AFFINE:
        return scales, _all(weights.parts[2], weights.kinds[2], read), 1.0
    if weights.scheme != INT8:
        return scales, None, 1.0
    if len(weights.parts) > 2 and any(b"".join(read(weights.parts[2], _BLOCK))):
        raise RefusedError("A bitsandbytes int8 weight does not have the row layout of a matrix (weight_format).")
    return scales, None, 127.0


def _four(weights: Dequantized, read: Read) -> tuple[int, Sequence[float], Sequence[float]]:
    """Return the size of a block, the sixteen values, and the scale of each block."""
    _, absmax, values, state, *nested = weights.parts
    count, inner = prod(absmax.shape), prod(nested[0].shape) if nested else 0
    told = state_of(b"".join(read(state, _BLOCK)), weights.shape, count, inner)
    scales = decoded(b"".join(read(absmax, _BLOCK)), "float32") if not nested else ()
    if nested:
        outer, map_ = (decoded(b"".join(read(part, _BLOCK)), "float32") for part in nested)
        codes = b"".join(read(absmax, _BLOCK))
        scales = array("d", [map_[code] * outer[at // told[1]] + told[2] for at, code in enumerate(codes)])
    return told[0], (*decoded(b"".join(read(values, _BLOCK)), "float32"), *[0.0] * 240), scales


_HIGH, _LOW = bytes([byte >> 4 for byte in range(256)]), bytes([byte & 15 for byte in range(256)])


def _nibbles(pieces: Iterator[bytes], total: int) -> Iterator[bytes]:
    """Yield the four bits of each number as a byte: the upper ones come first."""
    left = total
    for piece in pieces:
        made = bytearray(2 * len(piece))
        made[0::2], made[1::2] = piece.translate(_HIGH), piece.translate(_LOW)
        yield bytes(made[:left])
        left -= len(made)


class _Runs:
    """Numbers in C order as runs that share a scale."""

    def __init__(self, runs: tuple[int, int, int, int], total: int) -> None:
        _, self.columns, self.high, self.wide = runs
        self.across = -(-self.columns // self.wide)
        self.total = total

    def of(self, at: int, length: int) -> Iterator[tuple[int, int]]:
        """Yield the scale of each run of the numbers from ``at`` on, and how many of them it has."""
        end = at + length
        while at < end:
            row, column = divmod(at, self.columns)
            block = column // self.wide
            stop = min(end, row * self.columns + min(self.columns, (block + 1) * self.wide))
            yield row // self.high * self.across + block, stop - at
            at = stop


class _Maker:
    """Makes weights of codes and their scales, by tables where those pay."""

    def __init__(
        self,
        values: Sequence[float],
        scales: Sequence[float],
        zeros: Sequence[float] | None,
        divisor: float,
        weights: Dequantized,
    ) -> None:
        self._values, self._scales, self._zeros, self._divisor = values, scales, zeros, divisor
        self._dtype, self._width = weights.dtype, weights.width
        self._used = 16 if weights.scheme == FOUR else 256  # different codes
        self._tabled = prod(weights.shape) >= len(scales) * _FEW or weights.scheme == FOUR
        self._tables: dict[int, list[bytes]] = {}

    def made(self, codes: bytes, runs: Sequence[tuple[int, int]]) -> bytes:
        """Return the bytes of the weights with these codes."""
        if not self._tabled:
            return self._computed(codes, runs)
        self._prepare(runs)
        planes: list[list[bytes]] = [[] for _ in range(self._width)]
        at, count = 0, len(self._scales)
        for scale, length in runs:
            run = codes[at : at + length]
            for plane, table in zip(planes, self._tables[scale % count], strict=True):
                plane.append(run.translate(table))
            at += length
        made = bytearray(self._width * len(codes))
        for place, plane in enumerate(planes):
            made[place :: self._width] = b"".join(plane)
        return bytes(made)

    def _prepare(self, runs: Sequence[tuple[int, int]]) -> None:
        """Make for each scale and each byte of a weight a table: what the byte is for each code."""
        if len(self._tables) > _KEPT:
            self._tables.clear()
        count = len(self._scales)
        new = [scale for scale in dict.fromkeys([scale % count for scale, _ in runs]) if scale not in self._tables]
        values = self._values[: self._used]
        data = encoded([each for scale in new for each in self._products(values, scale)], self._dtype)
        size, rest = self._width * self._used, bytes(256 - self._used)
        for number, scale in enumerate(new):
            own = data[number * size : number * size + size]
            self._tables[scale] = [own[place :: self._width] + rest for place in range(self._width)]

    def _products(self, values: Sequence[float], scale: int) -> list[float]:
        factor = self._scales[scale]
        if self._zeros is not None:
            zero = self._zeros[scale]
            return [(value - zero) * factor for value in values]
        if self._divisor != 1.0:
            return [value * factor / self._divisor for value in values]
        return [value * factor for value in values]

    def _computed(self, codes: bytes, runs: Sequence[tuple[int, int]]) -> bytes:
        values: Iterator[float] = map(self._values.__getitem__, codes)
        if self._zeros is not None:
            values = map(sub, values, self._spread(self._zeros, runs))
        products = map(mul, values, self._spread(self._scales, runs))
        if self._divisor != 1.0:
            return encoded([each / self._divisor for each in products], self._dtype)
        return encoded(products, self._dtype)

    def _spread(self, numbers: Sequence[float], runs: Sequence[tuple[int, int]]) -> Iterator[float]:
        count = len(numbers)
        return chain.from_iterable([repeat(numbers[scale % count], length) for scale, length in runs])


# ---- the numbers that quantised bytes stand for


# bits of the mantissa, what is taken from the exponent, and whether there are infinite numbers
_FLOAT8 = {
    "float8_e4m3fn": (3, 7, False),
    "float8_e4m3fnuz": (3, 8, False),
    "float8_e5m2": (2, 15, True),
    "float8_e5m2fnuz": (2, 16, False),
}


@cache
def numbers(dtype: str) -> tuple[float, ...]:
    """Return the number that each of the 256 bytes is.

    Source: the formats of "FP8 Formats for Deep Learning" and of ONNX.
    """
    if dtype in ("int8", "qint8"):
        return tuple([float(byte - 256 if byte > 127 else byte) for byte in range(256)])
    if dtype in ("uint8", "quint8"):
        return tuple(map(float, range(256)))
    if dtype == "float8_e8m0fnu":
        return (*[ldexp(1.0, byte - 127) for byte in range(255)], nan)
    return tuple([_float8(byte, dtype) for byte in range(256)])


def _float8(byte: int, dtype: str) -> float:
    digits, bias, infinite = _FLOAT8[dtype]
    exponent, mantissa = (byte & 0x7F) >> digits, byte & ((1 << digits) - 1)
    sign = -1.0 if byte & 0x80 else 1.0
    if dtype.endswith("fnuz"):
        if byte == 0x80:
            return nan
    elif infinite:
        if exponent == 31:
            return nan if mantissa else sign * inf
    elif byte & 0x7F == 0x7F:
        return nan
    whole = mantissa if exponent == 0 else mantissa + (1 << digits)
    return sign * ldexp(float(whole), max(exponent, 1) - bias - digits)
