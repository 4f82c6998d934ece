"""What casting loses: measured by casting, and casting back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ckptdoctor.casting.arrays import Array, array_of, held_as, widened
from ckptdoctor.casting.cast import cast_array, in_pieces
from ckptdoctor.checkpoint import progress
from ckptdoctor.noun import noun


@noun
class Loss:
    """Of so many ``values``, those that are others afterwards: finite ones that become ``infinite`` or 0 among them.

    ``relative`` is the largest error of the others as a share of the value, and ``largest`` the largest of the values
    that become infinite.
    """

    values: int = 0
    changed: int = 0
    infinite: int = 0
    zero: int = 0
    relative: float = 0.0
    largest: float = 0.0

    def __add__(self, other: Loss) -> Loss:
        return Loss(
            values=self.values + other.values,
            changed=self.changed + other.changed,
            infinite=self.infinite + other.infinite,
            zero=self.zero + other.zero,
            relative=max(self.relative, other.relative),
            largest=max(self.largest, other.largest),
        )


def loss_of(chunks: Iterable[bytes], source: str, target: str) -> Loss:
    """Return the loss of casting these bytes, numbers of the dtype ``source``. NaN and infinity lose nothing."""
    found = Loss()
    for piece in in_pieces(chunks, held_as(source).itemsize):
        found += _of_piece(array_of(piece, source), source, target)
        progress.advance(len(piece))
    return found


def _of_piece(numbers: Array, source: str, target: str) -> Loss:
    given = widened(numbers, source)
    with np.errstate(all="ignore"):  # zeros are divided by here
        back = widened(cast_array(numbers, source, target), target).astype(given.dtype, copy=False)
        apart = back - given
        changed = int(np.count_nonzero(apart != 0))  # six times as fast as to count floats
        if not changed:
            return Loss(values=given.size)
        apart /= given
        low, high = float(apart.min()), float(apart.max())
        if low > -1 and high < 1:  # no NaN, and nothing that becomes 0 or infinite
            return Loss(given.size, changed, relative=max(high, -low))
        return _with_odd_ones(given, back)


def _with_odd_ones(given: Array, back: Array) -> Loss:
    """Return the same where there are zeros, NaN, infinity, or values that become 0 or infinite."""
    finite = np.isfinite(given)
    changed = int(np.count_nonzero((back != given) & finite))
    gone, over = (back == 0) & (given != 0), np.isinf(back) & finite
    infinite = int(np.count_nonzero(over))
    others = finite & ~over & ~gone & (given != 0)
    errors = np.abs((back[others] - given[others]) / given[others])
    return Loss(
        values=given.size,
        changed=changed,
        infinite=infinite,
        zero=int(np.count_nonzero(gone)),
        relative=float(errors.max()) if errors.size else 0.0,
        largest=float(np.abs(given[over]).max()) if infinite else 0.0,
    )
