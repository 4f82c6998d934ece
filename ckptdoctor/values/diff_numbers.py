"""Two runs of values are compared chunk by chunk: how far apart they are, and of what rank the difference is."""

from __future__ import annotations

from math import inf, isfinite, prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from ckptdoctor.casting.arrays import Array, held_as, is_narrow, real_dtype, real_parts, room, widened, widened_into
from ckptdoctor.casting.cast import cast_array
from ckptdoctor.checkpoint import Source, Tensor
from ckptdoctor.checkpoint.dtypes import DType, cast_loses_values
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.differences import Numbers, Pair, Rank, Ranks, Verdict
from ckptdoctor.formats.fresh.strided import segments
from ckptdoctor.noun import noun, replace
from ckptdoctor.values.chunks import sum_of, sums_of_squares
from ckptdoctor.values.diff_bytes import ByteRun, Feed, leaves
from ckptdoctor.values.files import Files

if TYPE_CHECKING:
    from collections.abc import Iterator


CHUNK = 1 << 19  # values at a time: threads wait for each other before and after each call into NumPy
_WIDE = 1 << 17  # columns of the widest matrix whose rank is looked for
_TINY = 1e-24  # sums of squares below it have lost digits in float32

_COMPUTED = ("float", "complex", "int", "uint", "bool")
_WIDTHS = frozenset({8, 16, 32, 64, 128})


def why_opaque(dtype: DType) -> str | None:
    """Return why nothing is computed with values of a dtype; None where it is."""
    odd = dtype.name.endswith("_x2") or (dtype.kind in ("int", "uint") and dtype.name.lstrip("uint") not in _NUMBERS)
    if dtype.kind not in _COMPUTED or dtype.bits not in _WIDTHS or odd:
        return f"{dtype.name} is a packed dtype"
    return None


_NUMBERS = ("8", "16", "32", "64")


@noun
class Tolerance:
    """Two values are close where |a - b| <= atol + rtol·|b|."""

    rtol: float = 0.0
    atol: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.rtol or self.atol)


class DifferenceMeter:
    """Measures runs in memory of its own: one for each thread."""

    def __init__(self, a: Files, b: Files, tolerance: Tolerance, work: Work | None = None) -> None:
        self._files = a, b
        self._work = work or Work()
        self._tolerance = tolerance
        self._buffers = [room(0, "uint8"), room(0, "uint8")]
        self._floats = room(3 * CHUNK, "float32").reshape(3, CHUNK)  # of both sides, and their difference

    def measure(self, run: ByteRun) -> Numbers:
        """Return the distance of both sides of a run."""
        from functools import reduce
        from operator import add

        feeds = Feed(run.data_a, self._files[0]), Feed(run.data_b, self._files[1])
        with np.errstate(all="ignore"):  # what is not finite is counted
            parts = [self._chunk(run, feeds, min(CHUNK, run.elements - at)) for at in range(0, run.elements, CHUNK)]
        return reduce(add, parts, Numbers())

    def values(self, feed: Feed, dtype: DType, count: int, side: int) -> Array:
        """Return the next values of a feed as arrays hold them; they are valid until the next ones are asked for."""
        if dtype.name == "float32" and count <= CHUNK:
            values = self._floats[side, :count]
        else:
            size = count * dtype.bits // 8
            if self._buffers[side].size < size:
                self._buffers[side] = room(size, "uint8")
            values = self._buffers[side][:size].view(held_as(dtype.name))
        feed.fill(values.view(np.uint8).data)
        return values

    def _chunk(self, run: ByteRun, feeds: tuple[Feed, Feed], count: int) -> Numbers:
        a = self.values(feeds[0], run.a.dtype, count, 0)
        b = self.values(feeds[1], run.b.dtype, count, 1)
        self._work.advance(count * (run.a.dtype.bits + run.b.dtype.bits) // 8)
        rounded = run.a.dtype == run.b.dtype or _converted(a, b, run.a.dtype, run.b.dtype)
        flags = _flags(run.a), _flags(run.b)
        if narrow(run.a.dtype) and narrow(run.b.dtype) and not any(flags):
            for side, (values, dtype) in enumerate([(a, run.a.dtype), (b, run.b.dtype)]):
                widened_into(values, dtype.name, self._floats[side])
            found = self._quick(self._floats[:, :count], rounded)
            if found is not None:
                return found
        return _careful(_wide(a, run.a, flags[0]), _wide(b, run.b, flags[1]), rounded, self._tolerance)

    def _quick(self, several: Array, rounded: bool) -> Numbers | None:
        """Return the difference in float32; None where values are not finite, or too large or small for that."""
        a, b, apart = several
        np.subtract(a, b, out=apart)
        square_a, square_b, square = sums_of_squares(several)
        if not isfinite(square + square_a + square_b):
            return None
        np.abs(apart, out=apart)
        changed, largest = _nonzero(apart)
        if changed and min(square, square_a, square_b) < _TINY:
            return None
        beyond = changed
        if self._tolerance and changed:
            allowed = np.abs(b) * np.float32(self._tolerance.rtol) + np.float32(self._tolerance.atol)
            beyond = int(np.count_nonzero(apart > allowed))
        return Numbers(
            elements=a.size,
            changed=changed,
            beyond=beyond,
            largest=largest,
            total=sum_of(apart),
            square=square,
            square_a=square_a,
            square_b=square_b,
            rounded=rounded,
        )


def _nonzero(sizes: Array) -> tuple[int, float]:
    """Return the number that are not zero, and the largest, of float32 without signs: as integers, which is faster."""
    whole = sizes.view(np.int32)
    count = whole.size if whole.min() else int(np.count_nonzero(whole))
    return count, float(sizes.max())


def narrow(dtype: DType) -> bool:
    """Return whether float32 holds every value of a dtype."""
    return is_narrow(dtype.name)


def _flags(tensor: Any) -> dict[str, object]:
    """Return the lazy conjugations and negations that are set."""
    return {name: value for name, value in tensor.details if name in ("conj", "neg") and value}


def _wide(values: Array, tensor: Tensor, flags: dict[str, object]) -> Array:
    """Return the values as float64 or complex128, conjugated and negated as they should be."""
    name = tensor.dtype.name
    made: Array = widened(real_parts(values, name), real_dtype(name)).astype(np.float64)
    if tensor.dtype.kind == "complex":
        made = made.view(np.complex128)
        made = made.conj() if flags.get("conj") else made
    return -made if flags.get("neg") else made


def _careful(a: Array, b: Array, rounded: bool, tolerance: Tolerance) -> Numbers:
    """Return the difference in float64, with NaNs and infinities counted: equal ones do not differ."""
    nan_a, nan_b = np.isnan(a), np.isnan(b)
    same = (a == b) | (nan_a & nan_b)
    odd = nan_a ^ nan_b
    apart = np.where(same | odd, 0.0, np.abs(a - b))
    finite = np.isfinite(a) & np.isfinite(b)
    allowed = tolerance.atol + tolerance.rtol * np.abs(b)
    beyond = ~same & ~(finite & (apart <= allowed))

    def squares(values: Array) -> float:
        sizes = np.abs(np.where(finite, values, 0.0))
        return float((sizes * sizes).sum())

    return Numbers(
        elements=a.size,
        changed=int(np.count_nonzero(~same)),
        beyond=int(np.count_nonzero(beyond)),
        odd=int(np.count_nonzero(odd)),
        largest=float(apart.max()) if a.size else 0.0,
        total=_total(apart),
        square=squares(apart),
        square_a=squares(a),
        square_b=squares(b),
        nan_a=int(np.count_nonzero(nan_a)),
        nan_b=int(np.count_nonzero(nan_b)),
        rounded=rounded,
    )


def _total(apart: Array) -> float:
    total = float(apart.sum())
    return total if isfinite(total) else inf


def _converted(a: Array, b: Array, dtype_a: DType, dtype_b: DType) -> bool:
    """Return whether the narrower values are what converting the wider ones gives."""
    if dtype_a.kind not in ("float", "complex") or dtype_b.kind != dtype_a.kind:
        return False
    if not cast_loses_values(dtype_a, dtype_b):
        a, b, dtype_a, dtype_b = b, a, dtype_b, dtype_a
    wide, name = real_dtype(dtype_a.name), real_dtype(dtype_b.name)
    one = widened(cast_array(real_parts(a, dtype_a.name), wide, name), name)
    other = widened(real_parts(b, dtype_b.name), name)
    return bool(((one == other) | ((one != one) & (other != other))).all())


DIRECTIONS = 72
_MATRICES = 6  # matrices that are looked at
_SMALLEST = 64  # rows and columns: below it every rank is a low one
_LOW = 4  # a low rank is at most the fourth part of the full one
_REST = 1e-3  # of the squared norm may be left over, besides what rounding explains


def ranks(
    pairs: list[Pair],
    a: Source,
    b: Source,
    swapped: tuple[bool, bool],
    work: Work,
) -> Ranks | None:
    """Return the ranks of what changed in the largest matrices; None where none is large enough.

    Raises StoppedError once nobody wants the rest of ``work``, in which nothing of this is counted.
    """
    wanted = sorted(filter(_eligible, pairs), key=lambda pair: -pair.a.numel)[:_MATRICES]
    if not wanted:
        return None
    low, full = [], []
    with Files(a) as files_a, Files(b) as files_b, np.errstate(all="ignore"):
        meter = DifferenceMeter(files_a, files_b, Tolerance())
        for pair in wanted:
            found = _rank(pair, meter, files_a, files_b, swapped, work)
            if found is None:
                full.append(pair.name)
            else:
                low.append(found)
    return Ranks(tuple(low), tuple(full), DIRECTIONS)


def _eligible(pair: Pair) -> bool:
    """Return whether it is a large matrix of plain floats that changed."""
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
    pair: Pair, meter: DifferenceMeter, a: Files, b: Files, swapped: tuple[bool, bool], work: Work
) -> Rank | None:
    """Return the rank of the difference of two matrices; None where it is not low, as merged adapters change one.

    It is told by a randomized sketch: the difference is multiplied with a few random directions (Halko, Martinsson and
    Tropp, 2011). What these directions capture of its squared norm is what a matrix of that rank could hold; the rest
    must be no more than rounding.
    """
    shape = pair.a.shape[0], prod(pair.a.shape[1:])
    directions = min(DIRECTIONS, min(shape) // 2)
    numbers = pair.values.numbers if pair.values is not None else None
    assert numbers is not None
    random = np.random.default_rng(0).standard_normal((shape[1], directions), np.float32)
    # so that neither rounding nor overflow decides
    scale = np.float32(1 / sqrt(numbers.square / (shape[0] * shape[1])))
    image = np.concatenate([apart * scale @ random for apart in _rows(pair, shape, meter, a, b, swapped, work)])
    basis, _ = np.linalg.qr(image)
    inner = np.zeros((directions, shape[1]), np.float32)
    first = 0
    for apart in _rows(pair, shape, meter, a, b, swapped, work):
        inner += basis[first : first + len(apart)].T @ (apart * scale)
        first += len(apart)
    energy = np.linalg.svd(inner.astype(np.float64), compute_uv=False) ** 2 / (shape[0] * shape[1])
    allowed = _REST + _rounding(pair, numbers.square, numbers.square_b)
    rest = 1.0
    for rank, share in enumerate(energy.tolist(), 1):
        rest -= share
        if rest <= allowed:
            low = rank * _LOW <= min(shape) and allowed < 0.5
            return Rank(pair.name, shape, rank, max(rest, 0.0)) if low else None
    return None


def _rounding(pair: Pair, square: float, square_b: float) -> float:
    """Return the share of the squared norm that rounding the new values to their dtype explains."""
    mantissa = min(pair.a.dtype.mantissa, pair.b.dtype.mantissa)
    return square_b * 2.0 ** (-2 * mantissa) / 12 / square


def _rows(
    pair: Pair,
    shape: tuple[int, int],
    meter: DifferenceMeter,
    a: Files,
    b: Files,
    swapped: tuple[bool, bool],
    work: Work,
) -> Iterator[Array]:
    """Yield the difference in groups of whole rows, in float32."""
    feeds = Feed(segments(_plain(pair, 0), swapped[0]), a), Feed(segments(_plain(pair, 1), swapped[1]), b)
    step = _WIDE // shape[1]
    for first in range(0, shape[0], step):
        work.go_on()
        count = min(step, shape[0] - first)
        one = widened(meter.values(feeds[0], pair.a.dtype, count * shape[1], 0), pair.a.dtype.name)
        other = widened(meter.values(feeds[1], pair.b.dtype, count * shape[1], 1), pair.b.dtype.name)
        yield (other - one).reshape(count, shape[1])


def _plain(pair: Pair, side: int) -> Tensor:
    return replace((pair.a, pair.b)[side], subclass=None)
