"""One chunk of values in numbers: a few passes over memory that the first pass has brought into the cache.

The sum of a chunk is finite only if all its values are, and no pass is faster. Floats of 16 bits are then looked at as
integers: without its sign bit, the integer of a float grows with the float, and integers are compared several times as
fast as these floats, which have to be widened first.
"""

from __future__ import annotations

import struct
from math import isfinite, isnan
from typing import TYPE_CHECKING

from ckptdoctor.values.partial import Partial

if TYPE_CHECKING:
    import torch

# sizes whose squares float32 adds up without overflow, and without losing what matters
_LARGE, _SMALL = 1e15, 1e-12
_CANCELLED = 0.5  # a variance below this share of the mean square has lost digits: it is computed again

# dtypes that are measured as they are; those of 16 bits with the integer that infinity is
_FLOATS = {"float64": 0, "float32": 0, "float16": 0x7C00, "bfloat16": 0x7F80}
_HALF = 2  # bytes
_FEW = 32  # values that plain Python is faster with
# integers that float32 holds exactly; wider ones are measured in float64
_NARROW = ("int8", "uint8", "int16", "uint16", "bool")


class Measure:
    """Measures chunks of at most ``size`` values in scratch memory of its own: one for each thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._scratch: dict[tuple[torch.dtype, str], torch.Tensor] = {}
        self._tables: dict[torch.dtype, torch.Tensor] = {}

    def scan(self, chunk: torch.Tensor, partial: Partial) -> None:
        """Count the NaNs and infinities of a contiguous chunk of real numbers, and nothing else."""
        values = self._as_float(chunk)
        partial.count += values.numel()
        if not isfinite(values.sum().item()):  # or the sum of finite values overflowed
            _not_finite(values, partial)

    def add(self, chunk: torch.Tensor, partial: Partial) -> None:
        """Count in a contiguous chunk of real numbers."""
        if chunk.numel() <= _FEW:
            _add_few([float(each) for each in chunk.tolist()], partial)
            return
        values = self._as_float(chunk)
        partial.count += values.numel()
        if values.element_size() > _HALF:
            self._add_wide(values, partial)
        else:
            self._add_half(values, partial)

    def _add_wide(self, values: torch.Tensor, partial: Partial) -> None:
        """Count in float32 or float64."""
        import torch

        low, high = (each.item() for each in torch.aminmax(values))
        if not isfinite(high - low) and not (isfinite(low) and isfinite(high)):
            values = _not_finite(values, partial)
            if not values.numel():
                return
            low, high = (each.item() for each in torch.aminmax(values))
        partial.min, partial.max = min(partial.min, low), max(partial.max, high)
        if low <= 0 <= high:
            sizes = torch.abs(values, out=self._out(values.dtype, "sizes", values.numel()))
            if sizes.amin().item() == 0:
                partial.zeros += int((values == 0).sum().item())
        self._moments(values, max(high, -low), partial)

    def _add_half(self, values: torch.Tensor, partial: Partial) -> None:
        """Count in float16 or bfloat16."""
        low, high = self._sizes(values)
        if high >= _FLOATS[_name(values.dtype)]:
            values = _not_finite(values, partial)
            if not values.numel():
                return
            low, high = self._sizes(values)
        self._extremes(values, low, high, partial)
        if low == 0:
            partial.zeros += int((values == 0).sum().item())
        self._moments(values, _float(high, values.dtype), partial)

    def _as_float(self, chunk: torch.Tensor) -> torch.Tensor:
        """The chunk, as it is or in scratch memory, in a dtype of ``_FLOATS``."""
        import torch

        name = _name(chunk.dtype)
        if name in _FLOATS:
            return chunk
        if name.startswith("float8"):
            return self._looked_up(chunk)
        values = self._out(torch.float32 if name in _NARROW else torch.float64, "float", chunk.numel())
        return values.copy_(chunk.view(torch.uint8) if name == "bool" else chunk)

    def _looked_up(self, chunk: torch.Tensor) -> torch.Tensor:
        """Floats of 8 bits as float32: one of 256 each, and looking them up is faster than converting them."""
        import torch

        if chunk.dtype not in self._tables:
            self._tables[chunk.dtype] = torch.arange(256, dtype=torch.uint8).view(chunk.dtype).float()
        values = self._out(torch.float32, "float", chunk.numel())
        places = self._out(torch.int32, "places", chunk.numel()).copy_(chunk.view(torch.uint8))
        return torch.index_select(self._tables[chunk.dtype], 0, places, out=values)

    def _sizes(self, values: torch.Tensor) -> tuple[int, int]:
        """The smallest and the largest size of a value, as integers."""
        import torch

        sizes = torch.abs(values, out=self._out(values.dtype, "sizes", values.numel()))
        low, high = torch.aminmax(sizes.view(torch.int16))
        return int(low.item()), int(high.item())

    def _extremes(self, values: torch.Tensor, low: int, high: int, partial: Partial) -> None:
        """The minimum and the maximum, from integers: those of negative floats are negative, in reverse order."""
        import torch

        dtype = values.dtype
        top = int(values.view(torch.int16).amax().item())
        most = _float(top, dtype) if top >= 0 else -_float(low, dtype)
        partial.max = max(partial.max, most)
        largest = _float(high, dtype)
        if largest > most:
            partial.min = min(partial.min, -largest)
        elif -largest < partial.min:  # or no value of this chunk could be less than the minimum of those before it
            flipped = torch.neg(values, out=self._out(dtype, "sizes", values.numel()))
            top = int(flipped.view(torch.int16).amax().item())
            partial.min = min(partial.min, -_float(top, dtype) if top >= 0 else _float(low, dtype))

    def _moments(self, values: torch.Tensor, largest: float, partial: Partial) -> None:
        import torch

        count = values.numel()
        exact = values.dtype is torch.float64 or not _SMALL < largest < _LARGE
        wanted = torch.float64 if exact and largest else torch.float32
        wide = values if values.dtype is wanted else self._out(wanted, "wide", count).copy_(values)
        mean, squares = wide.sum().item() / count, torch.dot(wide, wide).item()
        spread = squares - count * mean * mean
        if spread < _CANCELLED * squares:
            apart = torch.sub(wide, mean, out=self._out(wanted, "apart", count))
            rest = apart.sum().item() / count
            spread = torch.dot(apart, apart).item() - count * rest * rest
            mean += rest
        partial.add_moments(count, mean, spread, squares)

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
        mean = sum(finite) / len(finite)
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


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _float(bits: int, dtype: torch.dtype) -> float:
    """The float16 or bfloat16 that an integer stands for."""
    import torch

    made: float
    if dtype is torch.bfloat16:  # the upper half of a float32
        (made,) = struct.unpack("f", struct.pack("i", bits << 16))
    else:
        (made,) = struct.unpack("e", struct.pack("h", bits))
    return made
