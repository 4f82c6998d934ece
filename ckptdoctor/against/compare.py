"""Compares numbers of a source with what an export holds in their place: the same bits, cast, quantised, or others.

A cast is proven bit by bit: the source, rounded to the export's dtype, must give it. For a quantised tensor there is no
such proof, since whoever made it chose the scales. What holds of every quantisation is asked instead: in each block the
numbers are about as far from the source as rounding to its levels explains, and together they are not larger or
smaller than the source by a factor. Values of another tensor, of another row or with another scale fail one of these.
"""

from __future__ import annotations

from math import inf, isfinite, sqrt

import numpy as np

from ckptdoctor.against.elements import Elements
from ckptdoctor.casting.arrays import HALVES, Array, widened
from ckptdoctor.casting.cast import cast_array, unlike_halves
from ckptdoctor.checkpoint.dtypes import BY_NAME, cast_loses_values
from ckptdoctor.noun import noun
from ckptdoctor.values.ggml_blocks import REACH, dequantized

SAME, CAST, QUANTISED, DEQUANTISED = "same", "cast", "quantised", "dequantised"

# distance from the source as a share of the distance of two levels, as the root of its mean square: rounding alone
# gives 0.29; what lies beyond the last level adds to it, and scales that were fitted to some weights more than others
_IN_A_BLOCK, _IN_ALL = 0.9, 0.6
_FEW = 1024  # elements, which nearly always show whether numbers were rounded on the way
_HALF_STEP_OF_SCALES = 2.0**-25  # of the smallest float16

# what numbers may have been rounded to on the way, where the export could hold more
_ON_THE_WAY = ("", "bfloat16", "float16")


@noun
class Outcome:
    """What a comparison shows. ``how`` is one of the words above, "" where the numbers are others.

    ``largest`` and ``mean`` are distances of export and source, ``relative`` is that of all as vectors. ``factor`` is
    the export as a multiple of the source, as near as can be; ``rest`` is what that leaves of the relative distance.
    ``differing`` counts elements of which the bits are not those that they should be, and ``first`` is the first one.
    """

    how: str
    elements: int
    through: str = ""
    largest: float = 0.0
    mean: float = 0.0
    relative: float = 0.0
    factor: float = 1.0
    rest: float = 0.0
    differing: int = 0
    first: int | None = None
    zero: bool = False


class Meter:
    """Hears pairs of runs of elements, and says in the end what the export is of the source."""

    def __init__(self, source: Elements, export: Elements, shifted: bool) -> None:
        self._source, self._export, self._shifted = source, export, shifted
        self._alike = source.label == export.label and not shifted
        lossy = cast_loses_values(BY_NAME[source.dtype], BY_NAME[export.dtype])
        self._exact = not (source.packed or export.packed or shifted or lossy)
        floats = BY_NAME[source.dtype].kind == BY_NAME[export.dtype].kind == "float"
        ways = [each for each in _ON_THE_WAY if each != export.dtype] if floats and not export.packed else [""]
        self._ways = ways[:1] if self._exact and not self._alike else ways
        self._elements = self._differing = 0
        self._first: int | None = None
        self._sum = self._largest = self._apart = self._squares = 0.0
        self._sized = self._product = self._export_squares = 0.0  # of those whose sizes are compared
        self._square = 0.0  # of those that were measured last
        self._steps = 0.0  # distances in levels, squared
        self._worst = 0.0  # the same of the worst block, for each of its elements
        self._zero, self._source_zero = True, True

    def hear(self, given: Array, held: Array, at: int) -> None:
        """The next elements of both, from the element ``at`` of the export on, as they are stored."""
        with np.errstate(all="ignore"):
            if self._export.packed and not (self._alike and self._source.packed):
                self._quantised(given, held, at)
            else:
                self._plain(given, held, at)

    # ---- the same bits, or cast

    def _plain(self, given: Array, held: Array, at: int) -> None:
        count = held.size if not self._export.packed else held.size // self._export.unit_bytes * self._export.unit
        self._elements += count
        if self._alike and (given is held or np.array_equal(_bits(given), _bits(held))):
            if not self._differing:
                self._zero = self._source_zero = False
            return
        if self._export.packed:
            numbers, made = self._numbers(given), dequantized(held, self._export.packed)[0].reshape(-1)
            self._measure(numbers, made)
            self._size(numbers, made)
            self._unlike(np.flatnonzero(numbers != made), at)
            return
        numbers, dtype = self._numbers(given), self._source.dtype
        wide = None if self._exact else (self._wide(numbers, dtype), widened(held, self._export.dtype))
        finite = wide is not None and self._measure(*wide)
        wrong: Array | None = None
        left = []
        for way in self._ways:
            if way and _unequal(self._cast(numbers[:_FEW], dtype, way), held[:_FEW], self._export.dtype).size:
                continue
            unequal = self._uncast(numbers, held, way, wide if finite else None)
            if not unequal.size:
                left.append(way)
            elif wrong is None:
                wrong = unequal
        self._ways = left
        if not left:
            if wrong is None:  # what is here had no way left from what came before
                wrong = self._uncast(numbers, held, "", wide if finite else None)
            self._unlike(wrong, at)
        if wide is None and self._ways != [""]:
            wide = self._wide(numbers, dtype), widened(held, self._export.dtype)
            self._measure(*wide)
        if wide is not None and not self._ways:
            self._size(*wide)
        elif wide is not None:
            self._zero = False

    def _uncast(self, numbers: Array, held: Array, way: str, finite: tuple[Array, Array] | None) -> Array:
        """Return where the export does not hold what these numbers give, if they were rounded to ``way`` before.

        ``finite`` are both as they were measured, where all of them are.
        """
        if not way and finite is not None and self._export.dtype in HALVES:
            given, wide = finite
            return unlike_halves(given.astype(np.float32, copy=False), held, wide, self._export.dtype)
        return _unequal(self._cast(numbers, self._source.dtype, way), held, self._export.dtype)

    def _numbers(self, given: Array) -> Array:
        if self._source.packed and given.dtype == np.uint8:
            return dequantized(given, self._source.packed)[0].reshape(-1)
        return given

    def _wide(self, numbers: Array, dtype: str) -> Array:
        wide = widened(numbers, dtype)
        return wide + wide.dtype.type(1) if self._shifted else wide

    def _cast(self, numbers: Array, dtype: str, way: str) -> Array:
        """Return what the export holds of these numbers, if they were rounded to ``way`` before."""
        if self._shifted:
            numbers = self._wide(numbers, dtype)
            dtype = str(numbers.dtype)
        if way and way != dtype:
            numbers, dtype = cast_array(numbers, dtype, way), way
        return cast_array(numbers, dtype, self._export.dtype)

    def _unlike(self, places: Array, at: int) -> None:
        if places.size and self._first is None:
            self._first = at + int(places[0])
        self._differing += places.size

    def _measure(self, given: Array, held: Array) -> bool:
        """Add up the distances, and return whether all numbers are finite.

        What is not finite on either side counts as infinite where the two are not alike.
        """
        apart, finite = self._distances(given, held)
        self._apart += float(np.dot(apart, apart))
        return finite

    def _distances(self, given: Array, held: Array) -> tuple[Array, bool]:
        """Return the distances; all but their squares are added up."""
        wide = held.astype(given.dtype, copy=False)
        apart = wide - given
        np.abs(apart, out=apart)
        largest = float(apart.max(initial=0))
        finite = isfinite(largest)
        if not finite:
            apart = np.where((wide == given) | (np.isnan(wide) & np.isnan(given)), 0, apart)
            largest = float(np.nan_to_num(apart, nan=inf, posinf=inf).max(initial=0))
        self._largest = max(self._largest, largest)
        self._sum += float(np.add.reduce(apart))  # in pairs, so that float32 is exact enough
        self._square = float(np.dot(given, given))
        self._squares += self._square
        return apart, finite

    def _size(self, given: Array, held: Array) -> None:
        """Add up what tells whether one is a multiple of the other, of what was measured last."""
        wide = held.astype(given.dtype, copy=False)
        self._sized += self._square
        self._product += float(np.dot(given, wide))
        square = float(np.dot(wide, wide))
        self._export_squares += square
        self._zero = self._zero and square == 0
        self._source_zero = self._source_zero and not given.any()

    # ---- quantised

    def _quantised(self, given: Array, held: Array, at: int) -> None:
        made, steps = dequantized(held, self._export.packed)
        self._elements += made.size
        wide = self._wide(self._numbers(given), self._source.dtype).astype(np.float32, copy=False)
        apart, _ = self._distances(wide, made.reshape(-1))
        self._size(wide, made.reshape(-1))
        steps = steps + np.float32(max(1.0, REACH[self._export.packed]) * _HALF_STEP_OF_SCALES)
        groups = apart.reshape(steps.size, -1)
        of_groups = np.einsum("ij,ij->i", groups, groups).reshape(steps.shape)
        self._apart += float(np.add.reduce(of_groups, axis=None))
        of_groups /= steps * steps
        of_blocks = of_groups.sum(axis=1)
        self._steps += float(np.add.reduce(of_blocks, dtype=np.float64))
        worst = float(of_blocks.max(initial=0)) / made.shape[1]
        if not worst <= _IN_A_BLOCK**2:
            far = ~(of_blocks <= _IN_A_BLOCK**2 * made.shape[1])
            if self._first is None:
                self._first = at + int(np.argmax(far)) * made.shape[1]
            self._differing += int(np.count_nonzero(far)) * made.shape[1]
        self._worst = max(self._worst, worst if isfinite(worst) else inf)

    # ---- what comes of it

    @property
    def failed(self) -> bool:
        """Whether it is known already that the export does not follow from the source."""
        return self._differing > 0

    def add(self, other: Meter) -> None:
        """Take in what another one heard, of later elements."""
        self._ways = [each for each in self._ways if each in other._ways]
        if not self._ways and not self._export.packed and not self._differing + other._differing:
            self._differing, self._first = max(1, other._differing), other._first
        else:
            self._differing += other._differing
        self._first = other._first if self._first is None else self._first
        self._elements += other._elements
        self._sum += other._sum
        self._largest = max(self._largest, other._largest)
        self._apart += other._apart
        self._squares += other._squares
        self._sized += other._sized
        self._product += other._product
        self._export_squares += other._export_squares
        self._steps += other._steps
        self._worst = max(self._worst, other._worst)
        self._zero = self._zero and other._zero
        self._source_zero = self._source_zero and other._source_zero

    def outcome(self) -> Outcome:
        """Return what the elements that were heard show."""
        factor = self._product / self._sized if self._sized else 1.0
        relative = sqrt(self._apart / self._squares) if self._squares else (0.0 if not self._apart else inf)
        left = self._export_squares - factor * self._product
        rest = sqrt(max(left, 0.0) / self._export_squares) if self._export_squares else 0.0
        return Outcome(
            self._how(relative),
            self._elements,
            self._ways[0] if self._ways and not self._export.packed else "",
            self._largest,
            self._sum / self._elements if self._elements else 0.0,
            relative,
            factor,
            rest,
            self._differing,
            self._first,
            self._zero and not self._source_zero,
        )

    def _how(self, relative: float) -> str:
        if self._differing:
            return ""
        if self._alike and (self._export.packed or "" in self._ways):
            return SAME
        if not self._export.packed:
            return (DEQUANTISED if self._source.packed else CAST) if self._ways else ""
        if not self._elements:
            return QUANTISED
        if not self._steps <= _IN_ALL**2 * self._elements:
            return ""
        # the export as a multiple of the source, the other way round: rounding does not bias it, clipping hardly
        size = self._product / self._export_squares if self._export_squares else 1.0
        allowed = 0.005 + relative * relative + 4 * relative / sqrt(self._elements)
        return QUANTISED if abs(size - 1) <= allowed or not self._squares else ""


def _bits(values: Array) -> Array:
    kind = values.dtype
    whole = values.dtype.kind in "iu"
    return values if whole else values.view(f"u{kind.itemsize}")


def _unequal(one: Array, other: Array, dtype: str) -> Array:
    """Return where the bits are not the same; two NaNs count as the same."""
    made: Array = _bits(np.ascontiguousarray(one)) != _bits(np.ascontiguousarray(other))
    if BY_NAME[dtype].kind == "float" and made.any():
        made &= ~(np.isnan(widened(one, dtype)) & np.isnan(widened(other, dtype)))
    return np.flatnonzero(made)
