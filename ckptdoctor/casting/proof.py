"""Holds cast numbers against a computation of its own: each must be the nearest one that its dtype has.

Nothing is cast here. What the bits of a number stand for is worked out from sign, exponent and mantissa, and where the
next one begins is half way between the two.
"""

from __future__ import annotations

from functools import cache
from math import isfinite
from typing import TYPE_CHECKING

from ckptdoctor.casting.cast import numbers

if TYPE_CHECKING:
    import torch

# bits of exponent and mantissa
_PARTS = {
    "float64": (11, 52),
    "float32": (8, 23),
    "float16": (5, 10),
    "bfloat16": (8, 7),
    "float8_e5m2": (5, 2),
    "float8_e4m3fn": (4, 3),
    "float8_e5m2fnuz": (5, 2),
    "float8_e4m3fnuz": (4, 3),
}
_EDGED = ("float16", "bfloat16")  # of which tables are kept
_NO_INFINITY = {"float8_e4m3fn": 0x7F}  # the size that NaN has
_UNSIGNED_ZERO = ("float8_e5m2fnuz", "float8_e4m3fnuz")  # what would be -0 is NaN; the exponent counts from one less


def is_cast(given: bytes, made: bytes, source: str, target: str) -> bool:
    """Whether these bytes, numbers of the dtype ``target``, are what the others, of ``source``, have to become."""
    if target not in _PARTS:  # whole numbers, which are only cast to exactly
        return numbers(given, source).double().equal(numbers(made, target).double())
    old, new = _bits(given, source), _bits(made, target)
    if old.numel() != new.numel():
        return False
    return _is_plainly(old, new, source, target) or _is_each(old, new, source, target)


def _is_plainly(old: torch.Tensor, new: torch.Tensor, source: str, target: str) -> bool:
    """Whether all is right, and there is neither NaN nor infinity: what can be told fast."""
    import torch

    if not old.numel() or source not in ("float32", "float64") or target not in _EDGED:
        return not old.numel()
    given = old.view(getattr(torch, source))
    if (source, target) == ("float32", "bfloat16"):
        return isfinite(given.sum().item()) and _is_upper_half(old, new)
    if source == "float64":
        given = given.to(torch.float32)  # by way of which torch casts it
    places = new.to(torch.int32) & 0xFFFF
    low, high = (each.index_select(0, places) for each in _open_edges(target))
    return bool(((given > low) & (given < high)).all().item()) and bool(((old < 0) == (new < 0)).all().item())


def _is_upper_half(old: torch.Tensor, new: torch.Tensor) -> bool:
    """bfloat16 is float32 without its lower half: as integers they must be next to each other, at a tie even."""
    import torch

    after = new.to(torch.int32)
    apart = (old - (after << 16)).clamp_(-0x10000, 0x10000).abs_()  # far apart where the signs differ
    return int((apart * 2 + (after & 1)).amax().item()) <= 0x10000


@cache
def _open_edges(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """For the 65,536 numbers: the float32 below the first one that becomes this one, and that above the last."""
    import torch

    low, high = (each.to(torch.float32) for each in _edge_tables(dtype))  # exact: one bit more than the numbers have
    even = torch.arange(len(low)) & 1 == 0
    low = torch.where(even, torch.nextafter(low, torch.tensor(float("-inf"))), low)
    high = torch.where(even, torch.nextafter(high, torch.tensor(float("inf"))), high)
    exponent, mantissa = _PARTS[dtype]
    low[((1 << exponent) - 1) << mantissa :] = float("inf")  # infinity and NaN are looked at one by one
    return torch.cat([low, -high]), torch.cat([high, -low])


def _is_each(old: torch.Tensor, new: torch.Tensor, source: str, target: str) -> bool:
    """The same for any numbers, NaN and infinity among them."""
    import torch

    before, after = _sizes(old, source), _sizes(new, target)
    lost, nan = _is_nan(old, before, source), _is_nan(new, after, target)
    right = torch.where(lost | nan, lost & nan, _is_nearest(_given(old, before, source), after, source, target))
    same_sign = (old < 0) == (new < 0)
    if old.element_size() == 1:  # whose NaNs hold nothing
        same_sign |= lost
    return bool((right & same_sign).all().item())


def _bits(data: bytes, dtype: str) -> torch.Tensor:
    """The numbers as integers, whose sign is theirs."""
    import torch

    exponent, mantissa = _PARTS[dtype]
    kind = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[1 + exponent + mantissa]
    return numbers(data, str(kind).removeprefix("torch."))


def _sizes(bits: torch.Tensor, dtype: str) -> torch.Tensor:
    """The integers without their signs."""
    import torch

    exponent, mantissa = _PARTS[dtype]
    wide = bits if bits.dtype is torch.int64 else bits.to(torch.int32)
    return wide & ((1 << (exponent + mantissa)) - 1)


def _is_nan(bits: torch.Tensor, sizes: torch.Tensor, dtype: str) -> torch.Tensor:
    exponent, mantissa = _PARTS[dtype]
    if dtype in _UNSIGNED_ZERO:
        return (bits < 0) & (sizes == 0)
    if dtype in _NO_INFINITY:
        return sizes == _NO_INFINITY[dtype]
    return sizes > ((1 << exponent) - 1) << mantissa


def _given(bits: torch.Tensor, sizes: torch.Tensor, dtype: str) -> torch.Tensor:
    """What the numbers that were cast stand for, without their signs, as float64."""
    import torch

    if bits.element_size() > 2:  # which every processor widens exactly
        return bits.view(getattr(torch, dtype)).to(torch.float64).abs()
    exponent, mantissa = _PARTS[dtype]
    found = _values(sizes, dtype)
    if dtype in ("float16", "bfloat16", "float8_e5m2"):
        found[sizes == ((1 << exponent) - 1) << mantissa] = float("inf")
    return found


def _values(sizes: torch.Tensor, dtype: str) -> torch.Tensor:
    """What they stand for, as float64; infinity is the power of two that follows the largest number."""
    exponent, mantissa = _PARTS[dtype]
    if exponent + mantissa < 16:
        return _table(dtype).index_select(0, sizes)
    return _worked_out(sizes, dtype)


@cache
def _table(dtype: str) -> torch.Tensor:
    import torch

    exponent, mantissa = _PARTS[dtype]
    return _worked_out(torch.arange((1 << (exponent + mantissa)) + 1, dtype=torch.int64), dtype)


def _worked_out(sizes: torch.Tensor, dtype: str) -> torch.Tensor:
    import torch

    _, mantissa = _PARTS[dtype]
    power = sizes >> mantissa
    whole = (sizes & ((1 << mantissa) - 1)) + ((power > 0).to(sizes.dtype) << mantissa)
    return whole.to(torch.float64) * _powers(dtype)[power]


@cache
def _powers(dtype: str) -> torch.Tensor:
    """What the last bit of a mantissa stands for, by exponent."""
    import torch

    exponent, mantissa = _PARTS[dtype]
    bias = (1 << (exponent - 1)) - 1 + (dtype in _UNSIGNED_ZERO)
    lowest = [max(power, 1) - bias - mantissa for power in range((1 << exponent) + 1)]
    return torch.tensor([2.0**each if each < 1024 else float("inf") for each in lowest], dtype=torch.float64)


def _is_nearest(values: torch.Tensor, sizes: torch.Tensor, source: str, target: str) -> torch.Tensor:
    """Whether no other number of the dtype ``target`` is nearer to the values."""
    import torch

    if source == "float64" and target in ("float16", "bfloat16"):  # by way of float32, as torch does it
        values = values.to(torch.float32).to(torch.float64)
    exponent, mantissa = _PARTS[target]
    infinity = ((1 << exponent) - 1) << mantissa
    sizes = sizes.clamp(max=infinity)  # NaN is looked at elsewhere
    low, high = _edges(sizes, target)
    inside = (values > low) & ((values < high) | (sizes == infinity))
    if inside.all():
        return inside
    return inside | ((sizes & 1 == 0) & ((values == low) | (values == high)))


def _edges(sizes: torch.Tensor, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Half way to the numbers on either side; below 0 there is none."""
    if dtype in _EDGED:
        low, high = _edge_tables(dtype)
        return low.index_select(0, sizes), high.index_select(0, sizes)
    here = _values(sizes, dtype)
    below, above = _values((sizes - 1).clamp_(min=0), dtype), _values(sizes + 1, dtype)
    low = below / 2 + here / 2 if dtype == "float64" else (below + here) / 2
    low[sizes == 0] = -1.0
    return low, here / 2 + above / 2 if dtype == "float64" else (here + above) / 2


@cache
def _edge_tables(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    table = _table(dtype)
    between = (table[:-1] + table[1:]) / 2
    return torch.cat([torch.tensor([-1.0], dtype=torch.float64), between[:-1]]), between
