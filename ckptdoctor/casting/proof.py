"""Holds cast numbers against a computation of its own: each must be the nearest one that its dtype has.

Nothing is cast here. What the bits of a number stand for is worked out from sign, exponent and mantissa, and where the
next one begins is half way between the two.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ckptdoctor.casting.arrays import Array, array_of, widened

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
_NO_INFINITY = {"float8_e4m3fn": 0x7F}  # the size that NaN has; all below it are numbers
_UNSIGNED_ZERO = ("float8_e5m2fnuz", "float8_e4m3fnuz")  # what would be -0 is NaN; the exponent counts from one less


def is_cast(given: bytes | memoryview, made: bytes, source: str, target: str) -> bool:
    """Return whether these bytes, of the dtype ``target``, are what those of ``source`` have to become."""
    if target not in _PARTS:  # whole numbers, which are only cast to exactly
        return np.array_equal(widened(array_of(given, source), source), widened(array_of(made, target), target))
    old, new = _bits(given, source), _bits(made, target)
    if old.size != new.size:
        return False
    with np.errstate(all="ignore"):  # too large numbers become infinite, and NaN is compared
        return _is_plainly(old, new, source, target) or _is_each(old, new, source, target)


def _is_plainly(old: Array, new: Array, source: str, target: str) -> bool:
    """Return whether all is right, and there is neither NaN nor infinity: what can be told fast."""
    if not old.size or target not in ("float32", *_EDGED):
        return not old.size
    given = _in_float32(old, source)
    if not (np.isfinite(given.min()) and np.isfinite(given.max())):
        return False
    if target == "float32":
        return source != "float64" and bool((given.view(np.int32) == new).all())
    if target == "bfloat16" and source != "float64":
        return _is_upper_half(given.view(np.int32), new)
    low, high = (np.take(each, new.view(np.uint16)) for each in _open_edges(target))
    return bool(((given > low) & (given < high)).all()) and bool(((old < 0) == (new < 0)).all())


def _in_float32(old: Array, source: str) -> Array:
    """Return the numbers that were cast: float64 by way of which torch casts it, all others exactly."""
    if source == "bfloat16":
        return (old.astype(np.int32) << 16).view(np.float32)
    if source.startswith("float8"):
        return np.take(_every_number(source), old.view(np.uint8))
    return old.view(source).astype(np.float32, copy=False)


@cache
def _every_number(dtype: str) -> Array:
    """Return the float32 of each of the 256 numbers of a float8; NaN for those that are looked at one by one."""
    above = _table(dtype)[:128].astype(np.float32)
    if dtype == "float8_e5m2":
        above[0x7C:] = np.nan  # infinity, and NaN
    elif dtype in _NO_INFINITY:
        above[_NO_INFINITY[dtype]] = np.nan
    below = -above
    if dtype in _UNSIGNED_ZERO:
        below[0] = np.nan
    return np.concatenate([above, below])


def _is_upper_half(old: Array, new: Array) -> bool:
    """bfloat16 is float32 without its lower half: as integers they must be next to each other, at a tie even."""
    after = new.astype(np.int32)
    apart = np.abs(np.clip(old - (after << 16), -0x10000, 0x10000))  # far apart where the signs differ
    return int((apart * 2 + (after & 1)).max()) <= 0x10000


@cache
def _open_edges(dtype: str) -> tuple[Array, Array]:
    """Return for the 65,536 numbers the float32 below the first that becomes this one, and that above the last."""
    low, high = (each.astype(np.float32) for each in _edge_tables(dtype))  # exact: one bit more than the numbers have
    even = np.arange(len(low)) & 1 == 0
    low = np.where(even, np.nextafter(low, np.float32(-np.inf)), low)
    high = np.where(even, np.nextafter(high, np.float32(np.inf)), high)
    exponent, mantissa = _PARTS[dtype]
    low[((1 << exponent) - 1) << mantissa :] = np.inf  # infinity and NaN are looked at one by one
    return np.concatenate([low, -high]), np.concatenate([high, -low])


def _is_each(old: Array, new: Array, source: str, target: str) -> bool:
    """Return whether the same holds for any numbers, NaN and infinity among them."""
    before, after = _sizes(old, source), _sizes(new, target)
    lost, nan = _is_nan(old, before, source), _is_nan(new, after, target)
    same_sign = (old < 0) == (new < 0)
    if old.itemsize == 1:  # whose NaNs hold nothing
        same_sign |= lost
    if target in _UNSIGNED_ZERO:  # NaN is what follows the largest number: too large ones become it
        same_sign |= nan | (after == 0)
        after = np.where(nan, _largest(target), after)
        nan &= lost
    right = np.where(lost | nan, lost & nan, _is_nearest(_given(old, before, source), after, source, target))
    return bool((right & same_sign).all())


def _bits(data: bytes | memoryview, dtype: str) -> Array:
    """Return the numbers as integers, whose sign is theirs."""
    exponent, mantissa = _PARTS[dtype]
    return np.frombuffer(data, f"i{(1 + exponent + mantissa) // 8}")


def _sizes(bits: Array, dtype: str) -> Array:
    """Return the integers without their signs."""
    exponent, mantissa = _PARTS[dtype]
    wide = bits if bits.itemsize == 8 else bits.astype(np.int32)
    return wide & ((1 << (exponent + mantissa)) - 1)


def _is_nan(bits: Array, sizes: Array, dtype: str) -> Array:
    exponent, mantissa = _PARTS[dtype]
    found: Array = sizes > ((1 << exponent) - 1) << mantissa
    if dtype in _UNSIGNED_ZERO:
        found = (bits < 0) & (sizes == 0)
    elif dtype in _NO_INFINITY:
        found = sizes == _NO_INFINITY[dtype]
    return found


def _given(bits: Array, sizes: Array, dtype: str) -> Array:
    """Return what the numbers that were cast stand for, without their signs, as float64."""
    if bits.itemsize > 2:  # which every processor widens exactly
        return np.abs(bits.view(dtype).astype(np.float64))
    exponent, mantissa = _PARTS[dtype]
    found = _values(sizes, dtype)
    if dtype in ("float16", "bfloat16", "float8_e5m2"):
        found[sizes == ((1 << exponent) - 1) << mantissa] = np.inf
    return found


def _values(sizes: Array, dtype: str) -> Array:
    """Return what they stand for, as float64; infinity is the power of two that follows the largest number."""
    exponent, mantissa = _PARTS[dtype]
    if exponent + mantissa < 16:
        return np.take(_table(dtype), sizes)
    return _worked_out(sizes, dtype)


@cache
def _table(dtype: str) -> Array:
    exponent, mantissa = _PARTS[dtype]
    return _worked_out(np.arange((1 << (exponent + mantissa)) + 1, dtype=np.int64), dtype)


def _worked_out(sizes: Array, dtype: str) -> Array:
    _, mantissa = _PARTS[dtype]
    power = sizes >> mantissa
    whole = (sizes & ((1 << mantissa) - 1)) + ((power > 0).astype(sizes.dtype) << mantissa)
    found: Array = whole.astype(np.float64) * _powers(dtype)[power]
    return found


@cache
def _powers(dtype: str) -> Array:
    """Return what the last bit of a mantissa stands for, by exponent."""
    exponent, mantissa = _PARTS[dtype]
    bias = (1 << (exponent - 1)) - 1 + (dtype in _UNSIGNED_ZERO)
    lowest = [max(power, 1) - bias - mantissa for power in range((1 << exponent) + 1)]
    return np.array([2.0**each if each < 1024 else np.inf for each in lowest])


def _is_nearest(values: Array, sizes: Array, source: str, target: str) -> Array:
    """Return whether no other number of the dtype ``target`` is nearer to the values."""
    if source == "float64" and target in ("float16", "bfloat16"):  # by way of float32, as torch does it
        values = values.astype(np.float32).astype(np.float64)
    largest = _largest(target)
    sizes = np.minimum(sizes, largest)  # NaN is looked at elsewhere
    low, high = _edges(sizes, target)
    inside: Array = (values > low) & ((values < high) | (sizes == largest))
    if not inside.all():
        inside |= (sizes & 1 == 0) & ((values == low) | (values == high))
    return inside


def _largest(dtype: str) -> int:
    """Return the size of what all too large numbers become.

    Infinity, else the largest number, else the NaN behind it.
    """
    exponent, mantissa = _PARTS[dtype]
    if dtype in _UNSIGNED_ZERO:
        return 1 << (exponent + mantissa)
    return _NO_INFINITY[dtype] - 1 if dtype in _NO_INFINITY else ((1 << exponent) - 1) << mantissa


def _edges(sizes: Array, dtype: str) -> tuple[Array, Array]:
    """Return the places half way to the numbers on either side; below 0 there is none."""
    if dtype in _EDGED:
        low, high = _edge_tables(dtype)
        return np.take(low, sizes), np.take(high, sizes)
    here = _values(sizes, dtype)
    below, above = _values(np.maximum(sizes - 1, 0), dtype), _values(np.minimum(sizes + 1, _largest(dtype)), dtype)
    low = below / 2 + here / 2 if dtype == "float64" else (below + here) / 2
    low[sizes == 0] = -1.0
    return low, here / 2 + above / 2 if dtype == "float64" else (here + above) / 2


@cache
def _edge_tables(dtype: str) -> tuple[Array, Array]:
    table = _table(dtype)
    between = (table[:-1] + table[1:]) / 2
    return np.concatenate([[-1.0], between[:-1]]), between
