"""Computes the plain weights that a norm stands for: twice through the values, piece by piece, in float64."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from math import copysign, fsum, hypot, inf, isnan, nan, prod
from operator import mul

from ckptdoctor.edits.elements import Elements, Normed, Shape
from ckptdoctor.edits.norms import ALIGNED, WEIGHT, spectral_dims, undecided
from ckptdoctor.formats.elements.floats import decoded, encoded, width
from ckptdoctor.noun import noun

_PIECE = 1 << 16  # numbers that are worked on at once
_NARROW = 64  # numbers of a run that are not worth a slice
_BLOCK = 4 << 20  # bytes that are read at once

# gives the bytes of elements in C order, some at a time, at most about so many
Read = Callable[[Elements, int], Iterator[bytes]]


def normed(elements: Normed, read: Read) -> Iterator[bytes]:
    """Yield the bytes of the weights."""
    weights, *norm = elements.parts
    grid = _grid(weights.shape, elements.dim)
    numbers = [decoded(b"".join(read(part, _BLOCK)), elements.dtype) for part in norm]
    if elements.norm == WEIGHT:
        lengths = _lengths(grid, _pieces(weights, elements.dtype, grid, read))
        factors = array("d", map(_ratio, numbers[0], lengths))
    else:
        grid, factors = _grid(weights.shape, None), array("d", [_ratio(1.0, _sigma(elements, numbers, read))])
    for at, piece in _pieces(weights, elements.dtype, grid, read):
        yield encoded(map(mul, piece, grid.spread(factors, at, len(piece))), elements.dtype)


@noun
class _Grid:
    """Numbers in C order as runs of ``inner``, each of which belongs to one of ``count`` channels, in turn."""

    count: int
    inner: int
    total: int

    @property
    def period(self) -> int:
        """Numbers until it is the first channel's turn again."""
        return self.count * self.inner

    def narrow(self, length: int) -> bool:
        """Return whether lines of a piece would be short, along the runs and across them."""
        return self.inner <= _NARROW < self.period and length <= self.period * _NARROW

    def channel(self, at: int) -> int:
        """Return whose number this is."""
        return at // self.inner % self.count

    def step(self, at: int) -> int:
        """Return how many numbers from ``at`` on make the next piece: whole runs, or a part of one."""
        wanted = min(_PIECE, self.inner - at % self.inner) if self.inner > _PIECE else _PIECE // self.inner * self.inner
        return min(wanted, self.total - at)

    def lines(self, at: int, piece: Sequence[float]) -> Iterator[tuple[int, Sequence[float]]]:
        """Yield the numbers of a piece by their channels, in few lines."""
        if self.period * self.inner < len(piece):  # fewer lines across the runs than runs
            for first in range(self.period):
                yield self.channel(at + first), piece[first :: self.period]
            return
        for first in range(0, len(piece), self.inner):
            yield self.channel(at + first), piece[first : first + self.inner]

    def spread(self, factors: Sequence[float], at: int, count: int) -> Iterable[float]:
        """Return the factor of each number of a piece."""
        if self.inner >= count:
            return repeat(factors[self.channel(at)], count)
        first = at // self.inner
        own = [factors[run % self.count] for run in range(first, first + count // self.inner)]
        return own if self.inner == 1 else chain.from_iterable(map(repeat, own, repeat(self.inner)))


def _grid(shape: Shape, dim: int | None) -> _Grid:
    total = prod(shape)
    return _Grid(1, total, total) if dim is None else _Grid(shape[dim], prod(shape[dim + 1 :]), total)


def _pieces(part: Elements, dtype: str, grid: _Grid, read: Read) -> Iterator[tuple[int, Sequence[float]]]:
    """Yield the numbers piece by piece, each with the place of its first."""
    at, size, left = 0, width(dtype), b""
    for data in read(part, _BLOCK):
        left, start = left + data if left else data, 0
        while at < grid.total and len(left) - start >= grid.step(at) * size:
            stop = start + grid.step(at) * size
            piece = decoded(left[start:stop], dtype)
            yield at, piece
            at, start = at + len(piece), stop
        left = left[start:]


def _lengths(grid: _Grid, pieces: Iterable[tuple[int, Sequence[float]]]) -> array[float]:
    """Return the norm of each channel."""
    found: array[float] = array("d", bytes(8 * grid.count))
    for at, piece in pieces:
        if grid.narrow(len(piece)):
            _lengthen(found, grid, at // grid.inner, piece)
            continue
        for channel, line in grid.lines(at, piece):
            found[channel] = _length(found[channel], line)
    return found


def _lengthen(found: array[float], grid: _Grid, run: int, piece: Sequence[float]) -> None:
    """Read short runs of many channels: the first numbers of all runs, then the second ones, and so on."""
    at, runs = 0, len(piece) // grid.inner
    while at < runs:
        first = (run + at) % grid.count
        stop = min(grid.count, first + runs - at)
        part = piece[at * grid.inner : (at + stop - first) * grid.inner]
        for place in range(grid.inner):
            found[first:stop] = array("d", map(hypot, found[first:stop], part[place :: grid.inner]))
        at += stop - first


def _length(before: float, line: Sequence[float]) -> float:
    """Return the norm of all numbers together.

    Unlike ``hypot`` it is NaN where one of them is, even together with infinite ones.
    """
    length = hypot(before, *line)
    return nan if length == inf and (isnan(before) or any(map(isnan, line))) else length


def _sigma(elements: Normed, numbers: Sequence[Sequence[float]], read: Read) -> float:
    """Return ``uᵀ·W·v``, along the dimension that the edit names, or the only one along which W·v points as u does."""
    weights, (u, v) = elements.parts[0], numbers
    if elements.dim is not None:
        return _dot(_product(elements, elements.dim, v, read), u)
    for dim in spectral_dims(weights.shape, (len(u),), (len(v),)):
        product = _product(elements, dim, v, read)
        sigma = _dot(product, u)
        if sigma > ALIGNED * _length(0.0, product) * _length(0.0, u) > 0:
            return sigma
    raise undecided(weights.shape)


def _product(elements: Normed, dim: int, v: Sequence[float], read: Read) -> array[float]:
    """Return ``W·v``: the columns of W are the numbers of a channel, in C order."""
    grid = _grid(elements.shape, dim)
    sums: array[float] = array("d", bytes(8 * grid.count))
    for at, piece in _pieces(elements.parts[0], elements.dtype, grid, read):
        for first in range(0, len(piece), grid.inner):
            place = at + first
            column = place // grid.period * grid.inner + place % grid.inner
            run = piece[first : first + grid.inner]
            sums[grid.channel(place)] += _dot(run, v[column : column + len(run)])
    return sums


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    try:
        return fsum(map(mul, one, other))
    except (OverflowError, ValueError):  # infinite numbers among them
        return float(sum(map(mul, one, other)))


def _ratio(one: float, other: float) -> float:
    """Return the quotient as IEEE 754 has it, with zeros as well."""
    if other:
        return one / other
    return nan if isnan(one) or not one else copysign(inf, one) * copysign(1.0, other)
