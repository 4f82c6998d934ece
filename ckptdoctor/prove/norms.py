"""Holds weights that were computed of a norm's parts against a computation of its own.

Nothing that computed them is used: norms are sums of squares here, and every weight must be the number that these give,
or one next to it (in float64: the same to 13 digits).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from math import fsum, isfinite, prod, sqrt
from operator import mul

from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.edits.elements import Elements, Normed, Shape
from ckptdoctor.edits.norms import ALIGNED, WEIGHT, spectral_dims, undecided
from ckptdoctor.errors import WriteError
from ckptdoctor.formats.elements.floats import decoded, encoded, width

_PIECE = 1 << 16  # numbers that are compared at once
_SHORT = 64  # numbers of a channel in a row that are not worth a slice
_SUMS = 2.0**-44  # what sums of float64 may differ by, whatever the order

Read = Callable[[int, int], bytes]  # (first byte, length)
Chunks = Callable[[Elements], Iterator[bytes]]


def require_weights(weights: Normed, chunks: Chunks, read: Read) -> None:
    """Raise WriteError unless ``read`` gives the bytes of the weights; ``chunks`` gives those of their parts."""
    if 0 in weights.shape:
        return
    channels, inner = _channels(weights.shape, weights.dim)
    values, *norm = weights.parts
    numbers = [decoded(b"".join(chunks(part)), weights.dtype) for part in norm]
    if weights.norm == WEIGHT:
        factors = _scales(numbers[0], _squares(weights, channels, inner, chunks))
    else:
        factors = [_quotient(1.0, _sigma(weights, chunks, *numbers))]
        inner = prod(weights.shape)
    at, size = 0, width(weights.dtype)
    for piece in _pieces(values, weights.dtype, chunks):
        there = decoded(read(at * size, len(piece) * size), weights.dtype)
        if not _near(piece, _factors(factors, at, len(piece), inner), there, weights.dtype):
            raise WriteError("A weight of the output does not match its norm; it was discarded.")
        at += len(piece)


def _channels(shape: Shape, dim: int | None) -> tuple[int, int]:
    """Return how many channels have a norm of their own, and how many numbers of one follow each other."""
    return (1, prod(shape)) if dim is None else (shape[dim], prod(shape[dim + 1 :]))


def _pieces(part: Elements, dtype: str, chunks: Chunks) -> Iterator[Sequence[float]]:
    step = _PIECE * width(dtype)
    for data in chunks(part):
        for start in range(0, len(data), step):
            yield decoded(data[start : start + step], dtype)


def _runs(at: int, length: int, inner: int) -> Iterator[tuple[int, slice]]:
    """Yield the runs in a piece that begins at ``at``: the number of each, and where it is in the piece."""
    first = 0
    while first < length:
        stop = min(length, first + inner - (at + first) % inner)
        yield (at + first) // inner, slice(first, stop)
        first = stop


def _factors(factors: Sequence[float], at: int, length: int, inner: int) -> list[float]:
    """Return the factor of each number of a piece."""
    if inner > _SHORT:
        return [
            factor
            for run, part in _runs(at, length, inner)
            for factor in repeat(factors[run % len(factors)], part.stop - part.start)
        ]
    return [factors[place // inner % len(factors)] for place in range(at, at + length)]


def _squares(weights: Normed, channels: int, inner: int, chunks: Chunks) -> array[float]:
    found: array[float] = array("d", bytes(8 * channels))
    at = 0
    for piece in _pieces(weights.parts[0], weights.dtype, chunks):
        if inner > _SHORT:
            for run, part in _runs(at, len(piece), inner):
                found[run % channels] += _sum(map(mul, piece[part], piece[part]))
        else:
            for place, value in enumerate(piece, at):
                found[place // inner % channels] += value * value
        at += len(piece)
    return found


def _scales(g: Sequence[float], squares: Sequence[float]) -> list[float]:
    return [_quotient(one, sqrt(square)) for one, square in zip(g, squares, strict=True)]


def _sigma(weights: Normed, chunks: Chunks, u: Sequence[float], v: Sequence[float]) -> float:
    """Return ``uᵀ·W·v``; along the dimension in which W·v points where u does, if shapes leave more than one."""
    dims = (weights.dim,) if weights.dim is not None else spectral_dims(weights.shape, (len(u),), (len(v),))
    for dim in dims:
        product = _product(weights, dim, chunks, v)
        sigma = _sum(map(mul, product, u))
        ours, theirs = (_sum(map(mul, each, each)) for each in (product, u))
        if weights.dim is not None or sigma > ALIGNED * sqrt(ours) * sqrt(theirs) > 0:
            return sigma
    raise undecided(weights.shape)


def _product(weights: Normed, dim: int, chunks: Chunks, v: Sequence[float]) -> list[float]:
    """Return ``W·v``, run by run in the order of the file."""
    channels, inner = _channels(weights.shape, dim)
    found = [0.0] * channels
    at = 0
    for piece in _pieces(weights.parts[0], weights.dtype, chunks):
        for run, part in _runs(at, len(piece), inner):
            column = run // channels * inner + (at + part.start) % inner
            line = v[column : column + part.stop - part.start]
            found[run % channels] += _sum(map(mul, piece[part], line))
        at += len(piece)
    return found


def _sum(values: Iterator[float]) -> float:
    found = list(values)
    try:
        return fsum(found)
    except (OverflowError, ValueError):  # infinite numbers among them
        return sum(found)


def _quotient(one: float, other: float) -> float:
    """Return the quotient; NaN stands for whatever a division by nothing gives."""
    return one / other if other else float("nan")


def _near(values: Sequence[float], factors: Sequence[float], there: Sequence[float], dtype: str) -> bool:
    """Return whether these are the products, each rounded to the dtype or to the number next to it."""
    made = decoded(encoded(map(mul, values, factors), dtype), dtype)
    if made == there:
        return True
    kind = BY_NAME[dtype]
    least = 2.0 ** (2 - 2 ** (kind.exponent - 1) - kind.mantissa)  # the smallest number above 0
    near = max(2.0**-kind.mantissa, _SUMS)
    return all(
        one == other or abs(one - other) <= max(abs(one) * near, least) or (not isfinite(one) and not isfinite(other))
        for one, other in zip(made, there, strict=True)
    )
