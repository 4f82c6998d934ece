"""One chunk of values is measured in a few passes over memory that the first pass has brought into the cache.

Floats are widened to float32 first, exactly, where that holds them; everything else to float64. Extremes are NaN where
a value is, so that they say at the same time whether all is finite. Those of floats of 16 bits are told by the integers
that their bits are, which takes half as long. Sums are added up in float32 only in ways that are bounded whatever the
values are: see ``values.statistics.TensorValues``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import inf, isfinite, isnan, nan

import numpy as np

from ckptdoctor.casting.arrays import HALVES, Array, is_narrow, room, widened, widened_into
from ckptdoctor.values.float8_counts import add_counted, extremes_of_counted, is_counted
from ckptdoctor.values.partial import Partial

# sizes whose squares float32 adds up without overflow, and without losing what matters
_LARGE, _SMALL = 1e15, 1e-12
_CANCELLED = 0.5  # a variance below this share of the mean square has lost digits: it is computed again
_FEW = 32  # values that plain Python is faster with
_NEGATIVE = 0x8000  # the bit of the sign of floats of 16 bits
_EXPONENTS = {"float16": 0x7C00, "bfloat16": 0x7F80}  # the bits that NaN and infinities have all of


class ChunkMeasure:
    """Measures chunks in scratch memory of its own: one for each thread."""

    def __init__(self) -> None:
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

    def add_all(self, piece: Array, dtype: str, size: int, partial: Partial) -> None:
        """Count in a contiguous piece, chunk by chunk of ``size`` values.

        Several at once where they are plain: threads wait for each other before and after each call into NumPy.
        """
        several = piece.size // size if dtype == "float32" or dtype in HALVES else 0
        done = several * size if several > 1 else 0
        with np.errstate(all="ignore"):
            if done and not self._add_plain(piece[:done].reshape(several, size), dtype, partial):
                done = 0
        for at in range(done, piece.size, size):
            self.add(piece[at : at + size], dtype, partial)

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
        """Return the chunk as it is, or in scratch memory, as float32 or float64."""
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
        if not self._add_plain(chunk[np.newaxis], dtype, partial):
            self._add_floats(self._floats(chunk, dtype), partial)

    def _add_plain(self, chunks: Array, dtype: str, partial: Partial) -> bool:
        """Count in chunks of one size of float32, or of floats of 16 bits; False where not all of them are finite."""
        ends = _ends(chunks) if dtype == "float32" else _ends_of_halves(chunks, dtype)
        if ends is None:
            return False
        lows, highs = ends
        partial.count += chunks.size
        partial.zeros += self._zeros(chunks, lows, highs, dtype)
        partial.min, partial.max = min(partial.min, *lows), max(partial.max, *highs)
        values = chunks if dtype == "float32" else self._finite_halves(chunks, dtype)
        sums = zip(sums_of(values), sums_of_squares(values), strict=True)
        for chunk, low, high, (total, squares) in zip(values, lows, highs, sums, strict=True):
            largest = max(high, -low)
            if _SMALL < largest < _LARGE:
                self._add_sums(chunk, total, squares, partial)
            else:
                self._moments(chunk, largest, partial)
        return True

    def _zeros(self, chunks: Array, lows: Sequence[float], highs: Sequence[float], dtype: str) -> int:
        """Return the number of zeros of both signs in chunks with these extremes."""
        if not any(low <= 0 <= high for low, high in zip(lows, highs, strict=True)):
            return 0
        if dtype == "float32":
            return self._occurrences(chunks, 0)
        none = dtype == "bfloat16" and chunks.min()  # as of most weights; of float16 one in a million is 0
        count = 0 if none else chunks.size - int(np.count_nonzero(chunks))
        return count + (self._occurrences(chunks, _NEGATIVE) if int(chunks.view(np.int16).min()) == -_NEGATIVE else 0)

    def _occurrences(self, values: Array, value: int) -> int:
        equal = self._out(np.bool_, "equal", values.size).reshape(values.shape)
        return int(np.count_nonzero(np.equal(values, values.dtype.type(value), out=equal)))

    def _finite_halves(self, chunks: Array, dtype: str) -> Array:
        """Return the floats in whatever order they are widened fastest: two of bfloat16 are halves of an integer."""
        floats: Array = self._out(np.float32, "floats", chunks.size).reshape(chunks.shape)
        several, size = chunks.shape
        if dtype == "float16" or size % 2:
            widened_into(chunks.reshape(-1), dtype, floats.reshape(-1), finite=True)
            return floats
        pairs, bits = chunks.view(np.uint32), floats.view(np.uint32).reshape(several, 2, size // 2)
        np.left_shift(pairs, np.uint32(16), out=bits[:, 0])
        np.bitwise_and(pairs, np.uint32(0xFFFF0000), out=bits[:, 1])
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
            partial.zeros += self._occurrences(values, 0)
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
        self._add_sums(values, sum_of(values), sum_of_squares(values), partial)

    def _add_sums(self, values: Array, total: float, squares: float, partial: Partial) -> None:
        """Count in the moments of values with these sums."""
        count = values.size
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
            held = self._scratch[key] = room(max(count, 1 << 10), kind.__name__)
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
    """Return the least and the greatest number of a chunk; NaN or infinite where one of its numbers is."""
    if dtype in HALVES:
        ends = _ends_of_halves(chunk[np.newaxis], dtype)
        return (nan, nan) if ends is None else (ends[0][0], ends[1][0])
    if is_counted(dtype):
        return extremes_of_counted(chunk, dtype)
    return float(chunk.min()), float(chunk.max())


def _ends_of_halves(chunks: Array, dtype: str) -> tuple[list[float], list[float]] | None:
    """Return the least and the greatest number of each chunk by their bits; None where one is not finite.

    Numbers below 0 are the larger ones of integers without a sign, and the smaller ones of those with one: where there
    are numbers of both signs, the two largest integers tell all.
    """
    signed, exponents = chunks.view(np.int16), _EXPONENTS[dtype]
    positive, negative = signed.max(axis=1).tolist(), chunks.max(axis=1).tolist()
    if max(positive) >= exponents or max(negative) >= _NEGATIVE | exponents:
        return None
    lows = [bits if bits >= _NEGATIVE else int(chunk.min()) for chunk, bits in zip(chunks, negative, strict=True)]
    highs = [bits if bits >= 0 else int(chunk.min()) & 0xFFFF for chunk, bits in zip(signed, positive, strict=True)]
    return [_of_bits(bits, dtype) + 0.0 for bits in lows], [_of_bits(bits, dtype) + 0.0 for bits in highs]


def _ends(chunks: Array) -> tuple[list[float], list[float]] | None:
    """Return the same for float32: the least and the greatest number of each chunk."""
    lows, highs = chunks.min(axis=1).tolist(), chunks.max(axis=1).tolist()
    if not all(map(isfinite, (*lows, *highs))):
        return None
    return [low + 0.0 for low in lows], [high + 0.0 for high in highs]


def _of_bits(bits: int, dtype: str) -> float:
    """Return the number of a float of 16 bits."""
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


# values that are added up in float32: 31 roundings are within 1.9e-6 of their mean size, in whatever order; products
# with ones are added up in half the time that ``add.reduce`` takes, and in one thread while there are no more of them
_COLUMN = 32
_COLUMNS = 128
_ONES = np.ones(_COLUMN, np.float32)


def sum_of(values: Array) -> float:
    """Return the sum of contiguous float32 or float64: columns of float32 come first, which is as fast as memory."""
    return sums_of(values[np.newaxis])[0] if values.dtype == np.float32 else float(np.add.reduce(values))


def sums_of(several: Array) -> list[float]:
    """Return the sum of each of several runs of float32 of one length."""
    done = several.shape[1] - several.shape[1] % (_COLUMN * _COLUMNS)
    columns = np.matmul(_ONES, several[:, :done].reshape(len(several), -1, _COLUMN, _COLUMNS))
    sums = np.add.reduce(columns.reshape(len(several), -1), axis=1, dtype=np.float64)
    found: list[float] = (sums + np.add.reduce(several[:, done:], axis=1, dtype=np.float64)).tolist()
    return found


# squares in a row: their sum is within 6.1e-5 of itself in whatever order a BLAS adds them up, and in one thread
_ROW = 1 << 10


def sum_of_squares(values: Array) -> float:
    """Return the sum of squares of float32 or float64: in rows of their own precision, over the rows in float64."""
    return sums_of_squares(values[np.newaxis])[0]


def sums_of_squares(several: Array) -> list[float]:
    """Return the sum of squares of each of several runs of one length."""
    done = several.shape[1] - several.shape[1] % _ROW
    totals = [0.0] * len(several)
    if done:
        rows = several[:, :done].reshape(len(several), -1, 1, _ROW)
        sums = np.matmul(rows, rows.reshape(len(several), -1, _ROW, 1))
        totals = [float(each.sum(dtype=np.float64)) for each in sums]
    return [total + float(np.dot(rest, rest)) for total, rest in zip(totals, several[:, done:], strict=True)]
