"""Whether a matrix changed by a low rank, as merged adapters change it: told by a randomized sketch.

The difference is multiplied with a few random directions (Halko, Martinsson and Tropp, 2011). What these directions
capture of its squared norm is what a matrix of that rank could hold; the rest must be no more than rounding.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod, sqrt
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Source, Tensor
from ckptdoctor.differences import Pair, Rank, Ranks, Verdict
from ckptdoctor.formats.compose.strided import segments
from ckptdoctor.values.diff_bytes import Feed, Files, leaves
from ckptdoctor.values.diff_numbers import CHUNK, Meter, Tolerance, narrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

DIRECTIONS = 72
_LARGEST = 6  # matrices that are looked at
_SMALLEST = 64  # rows and columns: below it every rank is a low one
_LOW = 4  # a low rank is at most the fourth part of the full one
_REST = 1e-3  # of the squared norm may be left over, besides what rounding explains
_WIDE = CHUNK  # columns that fit the buffers


def ranks(
    pairs: list[Pair],
    a: Source,
    b: Source,
    swapped: tuple[bool, bool],
    go_on: Callable[[], None] = lambda: None,
) -> Ranks | None:
    """The ranks of what changed in the largest matrices; None where none is large enough.

    ``go_on`` is called again and again; what it raises ends the work.
    """
    wanted = sorted(filter(_eligible, pairs), key=lambda pair: -pair.a.numel)[:_LARGEST]
    if not wanted:
        return None
    low, full = [], []
    with Files(a) as files_a, Files(b) as files_b:
        meter = Meter(files_a, files_b, Tolerance())
        for pair in wanted:
            found = _rank(pair, meter, files_a, files_b, swapped, go_on)
            if found is None:
                full.append(pair.name)
            else:
                low.append(found)
    return Ranks(tuple(low), tuple(full), DIRECTIONS)


def _eligible(pair: Pair) -> bool:
    """Whether it is a large matrix of plain floats that changed."""
    one, other = pair.a, pair.b
    if pair.values is None or pair.values.verdict is not Verdict.CHANGED or pair.values.numbers is None:
        return False
    numbers, shape = pair.values.numbers, one.shape
    if one.shape != other.shape or one.numel == 0 or len(shape) < 2 or numbers.odd or numbers.nan_a or numbers.nan_b:
        return False
    columns = prod(shape[1:])
    floats = narrow(one.dtype) and narrow(other.dtype) and one.dtype.kind == "float"
    plain = all(not isinstance(leaves(each), str) and not each.parts for each in (one, other))
    return floats and plain and min(shape[0], columns) >= _SMALLEST and columns <= _WIDE and numbers.square > 0


def _rank(
    pair: Pair, meter: Meter, a: Files, b: Files, swapped: tuple[bool, bool], go_on: Callable[[], None]
) -> Rank | None:
    """The rank of the difference of two matrices; None where it is not low."""
    import torch

    shape = pair.a.shape[0], prod(pair.a.shape[1:])
    directions = min(DIRECTIONS, min(shape) // 2)
    numbers = pair.values.numbers if pair.values is not None else None
    assert numbers is not None
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(shape[1], directions, generator=generator)
    scale = 1 / sqrt(numbers.square / (shape[0] * shape[1]))  # so that neither rounding nor overflow decides
    image = torch.cat([apart.mul_(scale) @ random for apart in _rows(pair, shape, meter, a, b, swapped, go_on)])
    basis, _ = torch.linalg.qr(image)
    inner = torch.zeros(directions, shape[1])
    first = 0
    for apart in _rows(pair, shape, meter, a, b, swapped, go_on):
        inner += basis[first : first + len(apart)].T @ apart.mul_(scale)
        first += len(apart)
    energy = torch.linalg.svdvals(inner.double()).square() / (shape[0] * shape[1])
    allowed = _REST + _rounding(pair, numbers.square, numbers.square_b)
    rest = 1.0
    for rank, share in enumerate(energy.tolist(), 1):
        rest -= share
        if rest <= allowed:
            low = rank * _LOW <= min(shape) and allowed < 0.5
            return Rank(pair.name, shape, rank, max(rest, 0.0)) if low else None
    return None


def _rounding(pair: Pair, square: float, square_b: float) -> float:
    """The share of the squared norm that rounding the new values to their dtype explains."""
    mantissa = min(pair.a.dtype.mantissa, pair.b.dtype.mantissa)
    return square_b * 2.0 ** (-2 * mantissa) / 12 / square


def _rows(
    pair: Pair,
    shape: tuple[int, int],
    meter: Meter,
    a: Files,
    b: Files,
    swapped: tuple[bool, bool],
    go_on: Callable[[], None],
) -> Iterator[torch.Tensor]:
    """The difference in groups of whole rows, in float32."""
    feeds = Feed(segments(_plain(pair, 0), swapped[0]), a), Feed(segments(_plain(pair, 1), swapped[1]), b)
    step = CHUNK // shape[1]
    for first in range(0, shape[0], step):
        go_on()
        count = min(step, shape[0] - first)
        one = meter.values(feeds[0], pair.a.dtype, count * shape[1], 0).float()
        other = meter.values(feeds[1], pair.b.dtype, count * shape[1], 1).float()
        yield (other - one).view(count, shape[1])


def _plain(pair: Pair, side: int) -> Tensor:
    return replace((pair.a, pair.b)[side], subclass=None)
