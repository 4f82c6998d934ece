"""One chunk of values in numbers: a few passes over memory that the first pass has brought into the cache.

The sum of a chunk is finite only if all its values are, and no pass is faster: that is the scan. For statistics floats
are looked at as integers, which are compared several times as fast. Without its sign bit, the integer of a float grows
with the float: taken with a sign, the least integer is that of the smallest negative float and the greatest that of
the largest positive one; taken without, they are those of the smallest positive and the largest negative.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from math import inf, isfinite, isnan
from typing import TYPE_CHECKING, Any

from ckptdoctor.noun import noun
from ckptdoctor.values.float8_counts import add_counted, is_counted, scan_counted
from ckptdoctor.values.partial import Partial

if TYPE_CHECKING:
    import torch


# sizes whose squares float32 adds up without overflow, and without losing what matters
_LARGE, _SMALL = 1e15, 1e-12
_CANCELLED = 0.5  # a variance below this share of the mean square has lost digits: it is computed again

# dtypes that are measured as they are; those of 16 and 32 bits with the integer that infinity is
_FLOATS = {"float64": 0, "float32": 0x7F800000, "float16": 0x7C00, "bfloat16": 0x7F80}
_FEW = 32  # values that plain Python is faster with
# integers that float32 holds exactly; wider ones are measured in float64
_NARROW = ("int8", "uint8", "int16", "uint16", "bool")


@noun
class _Extremes:
    """The least and the greatest value of a chunk, and which integers its zeros are, of those that occur."""

    min: float
    max: float
    zeros: tuple[int, ...]


class ChunkMeasure:
    """Measures chunks of at most ``size`` values in scratch memory of its own: one for each thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._scratch: dict[tuple[torch.dtype, str], torch.Tensor] = {}

    def scan(self, chunk: torch.Tensor, partial: Partial) -> None:
        """Count the NaNs and infinities of a contiguous chunk of real numbers, and nothing else."""
        if is_counted(chunk.dtype):
            scan_counted(chunk, partial)
            return
        values = self._as_float(chunk)
        partial.count += values.numel()
        if not isfinite(values.sum().item()):  # or the sum of finite values overflowed
            _not_finite(values, partial)

    def add(self, chunk: torch.Tensor, partial: Partial) -> None:
        """Count in a contiguous chunk of real numbers."""
        if chunk.numel() <= _FEW:
            _add_few([float(each) for each in chunk.tolist()], partial)
        elif is_counted(chunk.dtype):
            add_counted(chunk, partial)
        else:
            self._add_floats(self._as_float(chunk), partial)

    def _add_floats(self, values: torch.Tensor, partial: Partial) -> None:
        partial.count += values.numel()
        extremes = self._extremes(values)
        if extremes is None:
            values = _not_finite(values, partial)
            if not values.numel():
                return
            extremes = self._extremes(values)
            assert extremes is not None
        partial.min, partial.max = min(partial.min, extremes.min), max(partial.max, extremes.max)
        partial.zeros += sum([self._occurrences(values, zero) for zero in extremes.zeros])
        self._moments(values, max(extremes.max, -extremes.min), partial)

    def _as_float(self, chunk: torch.Tensor) -> torch.Tensor:
        """The chunk, as it is or in scratch memory, in a dtype of ``_FLOATS``."""
        import torch

        name = _name(chunk.dtype)
        if name in _FLOATS:
            return chunk
        values = self._out(torch.float32 if name in _NARROW else torch.float64, "float", chunk.numel())
        return values.copy_(chunk.view(torch.uint8) if name == "bool" else chunk)

    def _extremes(self, values: torch.Tensor) -> _Extremes | None:
        """None where not all values are finite."""
        import torch

        if values.dtype is torch.float64:
            return self._extremes_of_doubles(values)
        bits = _bits(values)
        lowest = torch.iinfo(bits.dtype).min  # the integer of which only the sign bit is set: -0.0
        low, high = (int(each.item()) for each in torch.aminmax(bits))
        if low >= 0:  # nothing is negative
            below, above = low, high
        else:
            below, above = unsigned_extremes(bits, lambda: self._out(bits.dtype, "bits", bits.numel()))
        if max(high, above + lowest if low < 0 else 0) >= _FLOATS[_name(values.dtype)]:
            return None
        greatest = _float(high, values.dtype) if high >= 0 else -_float(low - lowest, values.dtype)
        least = -_float(above + lowest, values.dtype) if low < 0 else _float(below, values.dtype)
        zeros = [zero for zero, there in ((0, below == 0), (lowest, low == lowest)) if there]
        return _Extremes(least + 0.0, greatest + 0.0, tuple(zeros))

    def _extremes_of_doubles(self, values: torch.Tensor) -> _Extremes | None:
        """Integers of 64 bits are compared more slowly than floats."""
        import torch

        low, high = values.amin().item(), values.amax().item()
        if not (isfinite(low) and isfinite(high)):
            return None
        zeros: list[int] = []
        if low <= 0 <= high:
            sizes = torch.abs(values, out=self._out(values.dtype, "sizes", values.numel()))
            zeros = [0, -(1 << 63)] if sizes.amin().item() == 0 else []
        return _Extremes(low, high, tuple(zeros))

    def _occurrences(self, values: torch.Tensor, wanted: int) -> int:
        """The number of values that are the float that an integer stands for."""
        import torch

        bits = _bits(values)
        found = torch.eq(bits, wanted, out=self._out(bits.dtype, "bits", bits.numel()))
        return int(found.sum(dtype=torch.int32).item())

    def _moments(self, values: torch.Tensor, largest: float, partial: Partial) -> None:
        import torch

        count = values.numel()
        exact = values.dtype is torch.float64 or not _SMALL < largest < _LARGE
        wanted = torch.float64 if exact and largest else torch.float32
        total, squares = self._sums(values, wanted)
        if not isfinite(squares):  # of numbers beyond 1e154: torch and NumPy say infinity too
            halved = torch.mul(values, 0.5**64, out=self._out(wanted, "apart", count))
            partial.add_moments(count, halved.sum().item() / count * 2.0**64, inf, inf)
            return
        mean = total / count
        spread = squares - count * mean * mean
        if spread < _CANCELLED * squares:
            wide = self._widened(values, wanted)
            apart = torch.sub(wide, mean, out=self._out(wanted, "apart", count))
            rest, around = self._sums(apart, wanted)
            spread = around - rest * rest / count
            mean += rest / count
        partial.add_moments(count, mean, spread, squares)

    def _sums(self, values: torch.Tensor, wanted: torch.dtype) -> tuple[float, float]:
        """The sum, and the sum of squares, in the wanted precision or better."""
        import torch

        total, squares, done = (sums_by_rows(values) if wanted is torch.float32 else None) or (0.0, 0.0, 0)
        if done < values.numel():
            wide = self._widened(values[done:], wanted)
            total += wide.sum().item()
            squares += sum_of_squares(wide)
        return total, squares

    def _widened(self, values: torch.Tensor, wanted: torch.dtype) -> torch.Tensor:
        return values if values.dtype is wanted else self._out(wanted, "wide", values.numel()).copy_(values)

    def _out(self, dtype: torch.dtype, use: str, count: int) -> torch.Tensor:
        """Scratch memory for ``count`` values."""
        import torch

        key = dtype, use
        if key not in self._scratch:
            self._scratch[key] = torch.empty(self.size, dtype=dtype)
        return self._scratch[key][:count]


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


def _not_finite(values: torch.Tensor, partial: Partial) -> torch.Tensor:
    """Count what is not finite; gives the rest."""
    import torch

    partial.nan += int(values.isnan().sum().item())
    partial.positive_inf += int((values == float("inf")).sum().item())
    partial.negative_inf += int((values == float("-inf")).sum().item())
    return values[torch.isfinite(values)]


@cache
def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _bits(values: torch.Tensor) -> torch.Tensor:
    """Floats as the integers that their bits are."""
    import torch

    return values.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()])


def _float(bits: int, dtype: torch.dtype) -> float:
    """The float that a positive integer stands for."""
    import torch

    if dtype is torch.float16:
        return float(struct.unpack("e", struct.pack("h", bits))[0])
    # a bfloat16 is the upper half of a float32
    return float(struct.unpack("f", struct.pack("i", bits << 16 if dtype is torch.bfloat16 else bits))[0])


# ---- the bits of floats compared as integers without a sign, and squares added up: by NumPy where it is installed
#
# torch compares only integers with a sign and would have to flip that first, which takes twice as long; its dot product
# takes as long again as NumPy's. Every torch that finds NumPy has imported it already.


# values whose squares float32 adds up without losing digits; longer rows would go to threads of NumPy's own
_ROW = 1 << 13
_PIECE = 1 << 16  # the same for torch, which adds up in more lanes


def unsigned_extremes(bits: torch.Tensor, scratch: Callable[[], torch.Tensor]) -> tuple[int, int]:
    """The least and the greatest of signed integers taken for unsigned ones.

    ``scratch`` gives memory like that of ``bits``, which is only asked for where there is no NumPy.
    """
    import torch

    numpy = _numpy()
    if numpy is not None:
        array = bits.numpy().view(f"u{bits.element_size()}")
        return int(numpy.minimum.reduce(array)), int(numpy.maximum.reduce(array))
    lowest = torch.iinfo(bits.dtype).min
    flipped = torch.bitwise_xor(bits, torch.tensor(lowest, dtype=bits.dtype), out=scratch())
    least, greatest = (int(each.item()) - lowest for each in torch.aminmax(flipped))
    return least, greatest


def sum_of_squares(values: torch.Tensor) -> float:
    """Of contiguous float32 or float64. Four digits are right with float32, twelve with float64."""
    numpy = _numpy()
    done, total = 0, 0.0
    if values.numel() >= _ROW and hasattr(numpy, "vecdot"):  # since NumPy 2.0
        done = values.numel() // _ROW * _ROW
        rows = values.numpy()[:done].reshape(-1, _ROW)
        with numpy.errstate(over="ignore"):  # infinity is an answer
            total = float(numpy.vecdot(rows, rows).sum(dtype=numpy.float64))
    if done < values.numel():
        total += sum([piece.dot(piece).item() for piece in values[done:].split(_PIECE)])
    return total


@cache
def _numpy() -> Any:
    """None where it is not installed, or where torch was built for another one and cannot share memory with it."""
    import torch

    try:
        import numpy

        torch.zeros(1).numpy()
    except (ImportError, RuntimeError):
        return None
    return numpy


_SUMMED_ROW = 1024  # values: the sums of longer rows lose digits, those of shorter ones take longer
_FEW_SUMMED = 1 << 13  # values that are added up faster in other ways


def sums_by_rows(values: torch.Tensor) -> tuple[float, float, int] | None:
    """The sum and the sum of squares of the first values, and how many those are; None where this is not the way.

    In float32, of floats of 16 bits without widening them first. No reduction of torch gives a float32 for a bfloat16
    without writing all values as float32 first. One kernel does: what a group norm works out of the gradient of its
    weight and bias are, for each row, the sum of the products of two tensors and the sum of one of them, added up in
    float32 while both are read. For twice the same tensor, a mean of 0 and a deviation of 1 those are the squares and
    the values.
    """
    import torch

    if values.element_size() != 2 or values.numel() < _FEW_SUMMED or not _is_right(values.dtype):
        return None
    count = values.numel() // _SUMMED_ROW
    total, squares = _by_rows(values[: count * _SUMMED_ROW].view(1, count, _SUMMED_ROW))
    both = [each.sum(dtype=torch.float64).item() for each in (total, squares)]
    return both[0], both[1], count * _SUMMED_ROW


def _by_rows(table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    _, count, row = table.shape
    mean, deviation, weight = _constants(count)
    _, squares, total = torch.ops.aten.native_group_norm_backward(
        table, table, mean, deviation, weight, 1, count, row, 1, [False, True, True]
    )
    return total, squares


@cache
def _is_right(dtype: torch.dtype) -> bool:
    """Whether this torch knows the way for a dtype, tried once on numbers whose sums are known."""
    import torch

    numbers = (torch.arange(4 * _SUMMED_ROW) % 7 - 2).view(1, 4, _SUMMED_ROW)
    try:
        total, squares = _by_rows(numbers.to(dtype))
    except RuntimeError:  # an older one wants all of one dtype, whose sums would be rounded
        return False
    right = torch.equal(total.double(), numbers[0].sum(1).double())
    return total.dtype is torch.float32 and right and torch.equal(squares.double(), (numbers[0] ** 2).sum(1).double())


@cache
def _constants(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    import torch

    return torch.zeros(1, 1), torch.ones(1, 1), torch.ones(count)
