"""Which narrower dtypes hold every value of a tensor exactly."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from ckptdoctor.values.partial import Partial

if TYPE_CHECKING:
    import torch

_FLOATS = {
    "float64": ("float32", "bfloat16", "float16"),
    "float32": ("bfloat16", "float16"),
    "bfloat16": ("float8_e4m3fn", "float8_e5m2"),
    "float16": ("float8_e4m3fn", "float8_e5m2"),
}
_INTEGERS = {
    "int64": ("int32", "int16", "int8", "uint8"),
    "int32": ("int16", "int8", "uint8"),
    "int16": ("int8", "uint8"),
    "uint64": ("uint32", "uint16", "uint8"),
    "uint32": ("uint16", "uint8"),
    "uint16": ("uint8",),
}
_FIRST = 512  # values that are tried before the rest of a chunk is


class Narrowing:
    """The candidates of one tensor: most are out after its first values, and are not tried again."""

    def __init__(self, dtype: str) -> None:
        self.left = list(_FLOATS.get(dtype, ()))
        self._integers = _INTEGERS.get(dtype, ())

    def add(self, chunk: torch.Tensor) -> None:
        """Strike out the dtypes that do not hold every value of a chunk; NaN is held by none."""
        for name in tuple(self.left):
            held = _held(chunk[:_FIRST], name) and (chunk.numel() <= _FIRST or _held(chunk[_FIRST:], name))
            if not held and name in self.left:
                self.left.remove(name)

    def result(self, partial: Partial) -> tuple[str, ...]:
        """The names that are left."""
        if not partial.count:
            return ()
        if self._integers and isfinite(partial.min) and max(partial.max, -partial.min) <= 2.0**53:
            return tuple([name for name in self._integers if _in_range(partial, name)])
        return tuple(self.left)


def _held(chunk: torch.Tensor, name: str) -> bool:
    import torch

    return torch.equal(chunk.to(getattr(torch, name)).to(chunk.dtype), chunk)


def _in_range(partial: Partial, name: str) -> bool:
    import torch

    limits = torch.iinfo(getattr(torch, name))
    return limits.min <= partial.min and partial.max <= limits.max
