"""Holds weights that were computed of quantised ones against a computation of its own.

Nothing that computed them is used: the number of each code is worked out from its bits, the scale of each number from
its index, and every weight must be the product that these give, or the number next to it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import copysign, inf, isfinite, ldexp, nan, prod

from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.edits.elements import Dequantized, Elements
from ckptdoctor.edits.quantization import AFFINE, FOUR, INT8, state_of
from ckptdoctor.errors import WriteError
from ckptdoctor.formats.elements.floats import decoded, encoded

_PIECE = 1 << 17  # codes that are compared at once
_KEPT = 1 << 10  # scales of which what they give is kept, at most

Read = Callable[[int, int], bytes]  # (first byte, length)
Chunks = Callable[[Elements], Iterator[bytes]]


def require_dequantized(weights: Dequantized, chunks: Chunks, read: Read) -> None:
    """Raise WriteError unless ``read`` gives the bytes of the weights; ``chunks`` gives those of their parts."""
    total = prod(weights.shape)
    if not total:
        return
    judge = _judge(weights, chunks)
    at = 0
    for data in chunks(weights.parts[0]):
        for start in range(0, len(data), _PIECE):
            codes = data[start : start + _PIECE]
            if weights.scheme == FOUR:
                codes = bytes([half for byte in codes for half in (byte >> 4, byte & 15)])[: total - at]
            if not judge.agrees(at, codes, read(at * weights.width, len(codes) * weights.width)):
                raise WriteError("A weight of the output does not match its scale; it was discarded.")
            at += len(codes)


class _Judge:
    """Knows what each code with each scale has to become."""

    def __init__(
        self,
        weights: Dequantized,
        values: Sequence[float],
        scales: Sequence[float],
        zeros: Sequence[float] | None,
        block: int,
    ) -> None:
        self._weights, self._values, self._scales, self._zeros = weights, values, scales, zeros
        self._block = block  # of numbers that share a scale, where it is no matter of rows
        self._often = prod(weights.shape) >= len(scales) * len(values)
        self._known: dict[int, list[bytes]] = {}

    def agrees(self, at: int, codes: bytes, there: bytes) -> bool:
        """Return whether the codes from the number ``at`` on are these weights, each or the one next to it."""
        width, dtype = self._weights.width, self._weights.dtype
        first, made = 0, []
        while first < len(codes):
            scale, left = self._of(at + first)
            run = codes[first : first + left]
            if not self._often:
                made += self._products(run, scale)
            else:
                own = there[first * width : (first + len(run)) * width]
                same = all(own[byte::width] == run.translate(each) for byte, each in enumerate(self._bytes(scale)))
                if not same and not _near(encoded(self._products(run, scale), dtype), own, dtype):
                    return False
            first += len(run)
        return self._often or _near(encoded(made, dtype), there, dtype)

    def _bytes(self, scale: int) -> list[bytes]:
        """Return for each byte of a weight what it is for each code."""
        found = self._known.get(scale)
        if found is None:
            if len(self._known) > _KEPT:
                self._known.clear()
            width = self._weights.width
            data = encoded(self._products(range(len(self._values)), scale), self._weights.dtype).ljust(256 * width)
            found = self._known[scale] = [data[at::width] for at in range(width)]
        return found

    def _of(self, place: int) -> tuple[int, int]:
        """Return the scale of a number, and how many from it on have the same."""
        if self._block:
            return place // self._block, self._block - place % self._block
        _, columns, high, wide = self._weights.runs
        if len(self._scales) == 1:
            return 0, prod(self._weights.shape) - place
        row, column = place // columns, place % columns
        scale = row // high * ((columns + wide - 1) // wide) + column // wide
        return scale % len(self._scales), min(wide - column % wide, columns - column)

    def _products(self, codes: Iterable[int], scale: int) -> list[float]:
        values, factor = self._values, self._scales[scale]
        if self._zeros is not None:
            return [(values[code] - self._zeros[scale]) * factor for code in codes]
        if self._weights.scheme == INT8:
            return [values[code] * factor / 127 for code in codes]
        return [values[code] * factor for code in codes]


def _judge(weights: Dequantized, chunks: Chunks) -> _Judge:
    if weights.scheme == FOUR:
        values = _numbers(weights.parts[2], "float32", chunks)
        return _Judge(weights, values, _four(weights, chunks), None, _state(weights, chunks)[0])
    return _Judge(weights, [_number(byte, weights.kinds[0]) for byte in range(256)], *_scales(weights, chunks), 0)


def _scales(weights: Dequantized, chunks: Chunks) -> tuple[Sequence[float], Sequence[float] | None]:
    if weights.scheme == AFFINE and len(weights.parts) == 1:
        return [weights.affine[0]], [weights.affine[1]]
    scales = _numbers(weights.parts[1], weights.kinds[1], chunks)
    return scales, _numbers(weights.parts[2], weights.kinds[2], chunks) if weights.scheme == AFFINE else None


def _four(weights: Dequantized, chunks: Chunks) -> Sequence[float]:
    """Return the scales of a weight of bitsandbytes, those that are quantised themselves too."""
    absmax = weights.parts[1]
    if len(weights.parts) == 4:
        return _numbers(absmax, "float32", chunks)
    outer, values = (_numbers(part, "float32", chunks) for part in weights.parts[4:])
    _, size, offset = _state(weights, chunks)
    codes = b"".join(chunks(absmax))
    return array("d", [values[code] * outer[place // size] + offset for place, code in enumerate(codes)])


def _state(weights: Dequantized, chunks: Chunks) -> tuple[int, int, float]:
    nested = prod(weights.parts[4].shape) if len(weights.parts) > 4 else 0
    return state_of(b"".join(chunks(weights.parts[3])), weights.shape, prod(weights.parts[1].shape), nested)


def _numbers(part: Elements, dtype: str, chunks: Chunks) -> Sequence[float]:
    data = b"".join(chunks(part))
    if dtype == "int64":
        return [float(each) for (each,) in struct.iter_unpack("<q", data)]
    return [_number(byte, dtype) for byte in data] if BY_NAME[dtype].bits == 8 else decoded(data, dtype)


def _number(byte: int, dtype: str) -> float:
    """Return what a code of eight bits stands for, from its bits."""
    kind = BY_NAME[dtype]
    if kind.kind != "float":
        signed = kind.name in ("int8", "qint8")
        return float(int.from_bytes(bytes([byte]), "little", signed=signed))
    if not kind.mantissa:
        return nan if byte == 255 else ldexp(1, byte - 127)
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
    part = rest + ((exponent > 0) << kind.mantissa)
    found = ldexp(part, max(exponent, 1) - bias - kind.mantissa)
    return -found if sign == "1" else found


def _near(made: bytes, there: bytes, dtype: str) -> bool:
    """Return whether these are the same numbers, each or the one next to it."""
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
