"""One chunk of values is measured in a few passes over memory that the first pass has brought into the cache.

Floats are widened to float32 first, exactly, where that holds them; everything else to float64. Extremes are NaN where
a value is, so that they say at the same time whether all is finite. Those of floats of 16 bits are told by the integers
that their bits are, which takes half as long. Sums are added up in float32 only in ways that are bounded whatever the
values are: see ``values.statistics.TensorValues``.
"""

from __future__ import annotations

import struct
from math import inf, isfinite, isnan, nan

import numpy as np

from ckptdoctor.casting.arrays import HALVES, Array, is_narrow, widened, widened_into
from ckptdoctor.values.float8_counts import add_counted, extremes_of_counted, is_counted
from ckptdoctor.values.partial import Partial

# sizes whose squares float32 adds up without overflow, and without losing what matters
_LARGE, _SMALL = 1e15, 1e-12
_CANCELLED = 0.5  # a variance below this share of the mean square has lost digits: it is computed again
_FEW = 32  # values that plain Python is faster with
_NEGATIVE = 0x8000  # the bit of the sign of floats of 16 bits
_EXPONENTS = {"float16": 0x7C00, "bfloat16": 0x7F80}  # the bits that NaN and infinities have all of


class ChunkMeasure:
    """Measures chunks of at most ``size`` values in scratch memory of its own: one for each thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._scratch: dict[tuple[str, str], Array] = {}

    def scan(self, chunk: Array, dtype: str, partial: Partial) -> None:
        """Count in the extremes of a contiguous chunk of real numbers, its NaNs and infinities, and nothing else.

        Zeros are counted where all of the chunk is zero.
        """
        if chunk.size <= _FEW:
            _add_few(widened(chunk, dtype).tolist(), partial)
            return
        partial.count += chunk.size
        low, high = _extremes(chunk, dtype)
        finite = chunk.size
        if not (isfinite(low) and isfinite(high)):
            rest = _not_finite(widened(chunk, dtype), partial)
            finite = rest.size
            if not finite:
                return
            low, high = float(rest.min()), float(rest.max())
        partial.finite += finite
        partial.min, partial.max = min(partial.min, low + 0.0), max(partial.max, high + 0.0)
        if low == high == 0:
            partial.zeros += finite

    def add(self, chunk: Array, dtype: str, partial: Partial) -> None:
        """Count in a contiguous chunk of real numbers."""
        with np.errstate(all="ignore"):  # what is too large for a float is infinite
            if chunk.size <= _FEW:
                _add_few(widened(chunk, dtype).tolist(), partial)
            elif is_counted(dtype):
                add_counted(chunk, dtype, partial)
            elif dtype in HALVES:
                self._add_halves(chunk, dtype, partial)
            elif chunk.dtype.kind in "iu":
                self._add_integers(chunk, dtype, partial)
            else:
                self._add_floats(self._floats(chunk, dtype), partial)

    def _floats(self, chunk: Array, dtype: str) -> Array:
        """The chunk as it is, or in scratch memory, as float32 or float64."""
        if dtype in ("float32", "float64"):
            return chunk
        kind = np.float32 if is_narrow(dtype) else np.float64
        return widened_into(chunk, dtype, self._out(kind, "floats", chunk.size))

    def _add_integers(self, chunk: Array, dtype: str, partial: Partial) -> None:
        low, high = float(chunk.min()), float(chunk.max())
        partial.count += chunk.size
        partial.min, partial.max = min(partial.min, low), max(partial.max, high)
        others = int(np.count_nonzero(chunk)) if low <= 0 <= high else chunk.size
        partial.zeros += chunk.size - others
        if low >= 0 and high <= 1:  # as of bool: the sum is that of the squares, and the number of ones
            mean = others / chunk.size
            partial.add_moments(chunk.size, mean, others * (1 - mean), others)
            return
        self._moments(self._floats(chunk, dtype), max(high, -low), partial)

    def _add_halves(self, chunk: Array, dtype: str, partial: Partial) -> None:
        """Count in floats of 16 bits by their bits, where all are finite.

        Those below 0 are the larger ones of integers without a sign, and the smaller ones of those with one.
        """
        signed = chunk.view(np.int16)
        positive, negative = int(signed.max()), int(chunk.max())
        exponents = _EXPONENTS[dtype]
        if positive >= exponents or negative >= _NEGATIVE | exponents:
            self._add_floats(self._floats(chunk, dtype), partial)
            return
        least_positive, least_negative = int(chunk.min()), int(signed.min()) & 0xFFFF
        low = _of_bits(negative if negative >= _NEGATIVE else least_positive, dtype)
        high = _of_bits(positive if positive >= 0 else least_negative, dtype)
        partial.count += chunk.size
        partial.min, partial.max = min(partial.min, low + 0.0), max(partial.max, high + 0.0)
        if least_positive == 0:
            partial.zeros += chunk.size - int(np.count_nonzero(chunk))
        if least_negative == _NEGATIVE:  # -0
            equal = np.equal(chunk, np.uint16(_NEGATIVE), out=self._out(np.bool_, "zeros", chunk.size))
            partial.zeros += int(np.count_nonzero(equal))
        self._moments(self._finite_halves(chunk, dtype), max(high, -low), partial)

    def _finite_halves(self, chunk: Array, dtype: str) -> Array:
        """The floats, in whatever order they are widened fastest: of bfloat16 two are the halves of an integer."""
        floats = self._out(np.float32, "floats", chunk.size)
        if dtype == "float16" or chunk.size % 2:
            return widened_into(chunk, dtype, floats, finite=True)
        pairs, bits = chunk.view(np.uint32), floats.view(np.uint32)
        np.left_shift(pairs, np.uint32(16), out=bits[: pairs.size])
        np.bitwise_and(pairs, np.uint32(0xFFFF0000), out=bits[pairs.size :])
        return floats

    def _add_floats(self, values: Array, partial: Partial) -> None:
        partial.count += values.size
        low, high = float(values.min()), float(values.max())
        if not (isfinite(low) and isfinite(high)):
            values = _not_finite(values, partial)
            if not values.size:
                return
            low, high = float(values.min()), float(values.max())
        partial.min, partial.max = min(partial.min, low + 0.0), max(partial.max, high + 0.0)
        if low <= 0 <= high:
            partial.zeros += int(np.count_nonzero(np.equal(values, 0, out=self._out(np.bool_, "zeros", values.size))))
        self._moments(values, max(high, -low), partial)

    def _moments(self, values: Array, largest: float, partial: Partial) -> None:
        count = values.size
        if not largest:
            partial.add_moments(count, 0.0, 0.0, 0.0)
            return
        if values.dtype == np.float32 and not _SMALL < largest < _LARGE:
            wide = self._out(np.float64, "wide", count)
            np.copyto(wide, values)
            values = wide
        total, squares = sum_of(values), sum_of_squares(values)
        if not isfinite(squares):  # of numbers beyond 1e154: torch and NumPy say infinity too
            halved = np.multiply(values, 0.5**64, out=self._out(np.float64, "apart", count))
            partial.add_moments(count, float(np.add.reduce(halved)) / count * 2.0**64, inf, inf)
            return
        mean = total / count
        spread = squares - count * mean * mean
        if spread < _CANCELLED * squares:
            kind = np.float32 if values.dtype == np.float32 else np.float64
            mean = float(kind(mean))
            apart = np.subtract(values, kind(mean), out=self._out(kind, "apart", count))
            rest = sum_of(apart)
            spread = sum_of_squares(apart) - rest * rest / count
            mean += rest / count
        partial.add_moments(count, mean, spread, squares)

    def _out(self, kind: type, use: str, count: int) -> Array:
        """Scratch memory for ``count`` values."""
        key = kind.__name__, use
        held = self._scratch.get(key)
        if held is None or held.size < count:
            held = self._scratch[key] = np.empty(min(self.size, max(count, 1 << 10)), kind)
        return held[:count]


def _add_few(values: list[float], partial: Partial) -> None:
    finite = [each for each in values if isfinite(each)]
    partial.count += len(values)
    partial.nan += sum(map(isnan, values))
    partial.positive_inf += values.count(float("inf"))
    partial.negative_inf += values.count(float("-inf"))
    if finite:
        mean = sum([each / len(finite) for each in finite])  # their sum may be more than a float holds
        apart = [each - mean for each in finite]
        partial.zeros += finite.count(0.0)
        partial.min, partial.max = min(partial.min, *finite), max(partial.max, *finite)
        squares = sum([each * each for each in finite])
        partial.add_moments(len(finite), mean, sum([each * each for each in apart]), squares)


def _extremes(chunk: Array, dtype: str) -> tuple[float, float]:
    """The least and the greatest number of a chunk; NaN or infinite where one of its numbers is."""
    if dtype in HALVES:
        return _extremes_of_halves(chunk, dtype)
    if is_counted(dtype):
        return extremes_of_counted(chunk, dtype)
    return float(chunk.min()), float(chunk.max())


def _extremes_of_halves(chunk: Array, dtype: str) -> tuple[float, float]:
    """The same by their bits: where there are numbers of both signs, the two largest integers tell all."""
    signed = chunk.view(np.int16)
    positive, negative, exponents = int(signed.max()), int(chunk.max()), _EXPONENTS[dtype]
    if positive >= exponents or negative >= _NEGATIVE | exponents:
        return nan, nan
    low = negative if negative >= _NEGATIVE else int(chunk.min())
    high = positive if positive >= 0 else int(signed.min()) & 0xFFFF
    return _of_bits(low, dtype), _of_bits(high, dtype)


def _of_bits(bits: int, dtype: str) -> float:
    """The number of a float of 16 bits."""
    wide = struct.pack("<HH", 0, bits) if dtype == "bfloat16" else struct.pack("<H", bits)
    number: float = struct.unpack("<f" if dtype == "bfloat16" else "<e", wide)[0]
    return number


def _not_finite(values: Array, partial: Partial) -> Array:
    """Count what is not finite; gives the rest."""
    partial.nan += int(np.count_nonzero(np.isnan(values)))
    partial.positive_inf += int(np.count_nonzero(values == np.inf))
    partial.negative_inf += int(np.count_nonzero(values == -np.inf))
    finite: Array = values[np.isfinite(values)]
    return finite


# values that are added up in float32: 31 roundings are within 1.9e-6 of their mean size, in whatever order
_COLUMN = 32


def sum_of(values: Array) -> float:
    """Of contiguous float32 or float64: columns of float32 are added up first, which is as fast as memory."""
    if values.dtype != np.float32:
        return float(np.add.reduce(values))
    done = values.size - values.size % _COLUMN
    columns = np.add.reduce(values[:done].reshape(_COLUMN, -1), axis=0)
    return float(np.add.reduce(columns, dtype=np.float64) + np.add.reduce(values[done:], dtype=np.float64))


# squares in a row: their sum is within 6.1e-5 of itself in whatever order a BLAS adds them up, and in one thread
_ROW = 1 << 10


def sum_of_squares(values: Array) -> float:
    """Of contiguous float32 or float64: in rows of the values' own precision, and over the rows in float64."""
    return sums_of_squares(values[np.newaxis])[0]


def sums_of_squares(several: Array) -> list[float]:
    """The same for each of several runs of one length."""
    done = several.shape[1] - several.shape[1] % _ROW
    totals = [0.0] * len(several)
    if done:
        rows = several[:, :done].reshape(len(several), -1, 1, _ROW)
        sums = np.matmul(rows, rows.reshape(len(several), -1, _ROW, 1))
        totals = [float(each.sum(dtype=np.float64)) for each in sums]
    return [total + float(np.dot(rest, rest)) for total, rest in zip(totals, several[:, done:], strict=True)]


def dtype_of(values: Array) -> str:
    """The name of a dtype that NumPy has."""
    return str(values.dtype)
