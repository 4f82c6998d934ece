"""Looks at one tensor: a window of its values, its statistics and extremes, and a picture of a slice made smaller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from ckptdoctor.casting.arrays import Array, real_parts
from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.values.chunks import ChunkMeasure
from ckptdoctor.values.extremes import along, largest, sample
from ckptdoctor.values.flat_chunks import CHUNK
from ckptdoctor.values.partial import Partial
from ckptdoctor.values.regions import Boxes, Picks, UnreadError, plain
from ckptdoctor.values.statistics import Look, Picture, Window
from ckptdoctor.values.summing_up import Narrowing, duplicated_rows, summed_up

RANGE_PARTS = 240  # parts of the range of values: a number that many widths divide
READ_WHOLE = 1 << 24  # elements up to which a tensor is read as a whole
_EXACT_BYTES = 64 << 20
_SAMPLE = 1 << 22  # elements of a larger one that are looked at, in so many reads
_READS = 512
_FAR_AWAY = 1 << 18, 8  # the same where each read is a request over a network


def window(tensor: Tensor, box: Sequence[range], boxes: Boxes) -> Window:
    """Return the values of a box."""
    values = boxes.read(plain(tensor), [(each,) for each in box])
    return Window(tuple(box), tuple(values.reshape(-1).tolist()))


def look(tensor: Tensor, boxes: Boxes, work: Work, distant: bool = False) -> Look:
    """Return statistics, histograms and extremes. Raises StoppedError once nobody wants the rest."""
    tensor = plain(tensor)
    picks = _picks(tensor, distant)
    values = boxes.read(tensor, picks)
    whole = values.size == tensor.numel
    real = real_parts(values.reshape(-1), str(values.dtype))
    with np.errstate(all="ignore"):  # NaN and infinity are what is looked for
        statistics = _Statistics(tensor.dtype.name if whole else "", work)
        for chunk in _split(real):
            statistics.add(chunk)
        rows = duplicated_rows(real, tensor.shape) if whole and not np.iscomplexobj(values) else None
        numbers = summed_up(statistics.partial, fits=statistics.fits, duplicated_rows=rows)
        bins, sizes = statistics.bins(real)
        absolute = _sizes(values)
        return Look(
            looked=values.size,
            total=tensor.numel,
            values=numbers,
            bins=bins,
            sizes=sizes,
            extremes=largest(values, absolute, picks, work),
            dimensions=along(values, absolute, picks, work),
            floating=real.dtype.kind == "f",
        )


def _split(values: Array) -> Iterator[Array]:
    for at in range(0, len(values), CHUNK):
        yield values[at : at + CHUNK]


def picture(
    tensor: Tensor, box: Sequence[range], rows: int | None, shape: tuple[int, int], how: str, boxes: Boxes
) -> Picture:
    """Return a slice as at most ``shape`` cells; the dimension ``rows`` goes down (None: the only one wraps)."""
    tensor = plain(tensor)
    values = boxes.read(tensor, _drawn(box, tensor))
    return _pictured(values, box, rows, shape, how)


def difference_picture(
    a: Tensor,
    b: Tensor,
    box: Sequence[range],
    rows: int | None,
    shape: tuple[int, int],
    how: str,
    boxes: tuple[Boxes, Boxes],
) -> Picture:
    """Return the same of the values of one tensor minus those of another of the same shape."""
    for each in (a, b):
        if each.layout != "strided":
            raise UnreadError(f"values of {each.layout} tensors may belong to other places")
    a, b = plain(a), plain(b)
    if a.shape != b.shape:
        raise UnreadError("their shapes differ")
    picks = _drawn(box, a)
    one, other = boxes[0].read(a, picks), boxes[1].read(b, picks)
    with np.errstate(all="ignore"):  # infinite ones have no difference
        one, other = _wide(one), _wide(other)
        same = (one == other) | (np.isnan(one) & np.isnan(other))  # infinite ones, too
        return _pictured(np.where(same, 0, one - other), box, rows, shape, how)


def _wide(values: Array) -> Array:
    """So wide that little is lost by subtracting."""
    return values.astype(np.complex128 if np.iscomplexobj(values) else np.float64)


def _drawn(box: Sequence[range], tensor: Tensor) -> Picks:
    """Return the part of a box that is read to draw it."""
    return _inside(box, tensor, READ_WHOLE if prod([len(each) for each in box]) <= READ_WHOLE else _SAMPLE)


def _pictured(values: Array, box: Sequence[range], rows: int | None, shape: tuple[int, int], how: str) -> Picture:
    counts = [len(each) for each in box]
    whole = prod(counts)
    numbers = np.abs(values) if np.iscomplexobj(values) else values
    sampled = values.size < whole
    if rows is None:
        return wrapped(numbers.reshape(-1), whole, shape, how, sampled)
    if not whole:
        return Picture((), 1.0, 1.0, how)
    down = counts[rows]
    table = np.moveaxis(numbers, rows, 0).reshape(numbers.shape[rows], -1)
    return pooled(table, (down, whole // down), shape, how, sampled)


def _inside(box: Sequence[range], tensor: Tensor, most: int) -> Picks:
    """Return the indexes of a box that are read, where not all of them are."""
    kept = sample([len(each) for each in box], _stride(tensor), most, _READS)
    return [
        [range(each.start + run.start, each.start + run.stop) for run in runs]
        for each, runs in zip(box, kept, strict=True)
    ]


def _stride(tensor: Tensor) -> tuple[int, ...]:
    """Return the distance of elements in memory; of a tensor in pieces, as if it were in one."""
    return tensor.stride if len(tensor.stride) == len(tensor.shape) else contiguous_stride(tensor.shape)


def _picks(tensor: Tensor, distant: bool) -> Picks:
    exact = min(READ_WHOLE, _EXACT_BYTES * 8 // tensor.dtype.bits)
    most, reads = _FAR_AWAY if distant else (_SAMPLE, _READS)
    if distant:
        exact = most
    if tensor.numel <= exact:
        return [(range(size),) for size in tensor.shape]
    return sample(tensor.shape, _stride(tensor), most, reads)


def _sizes(values: Array) -> Array:
    """Absolute values, as floats that are compared exactly."""
    if values.dtype.kind in "fc":
        return np.abs(values)
    return np.abs(values.astype(np.float32 if values.itemsize < 4 else np.float64))


class _Statistics:
    """Counts in chunks of real numbers."""

    def __init__(self, narrowed: str, work: Work) -> None:
        self.partial = Partial()
        self._measure = ChunkMeasure()
        self._narrowing = Narrowing(narrowed)
        self._work = work

    def add(self, chunk: Array) -> None:
        """Count in what there is to know."""
        self._work.go_on()
        self._measure.add(chunk, str(chunk.dtype), self.partial)
        if self._narrowing.left and chunk.dtype.kind == "f":
            self._narrowing.add(chunk, str(chunk.dtype))

    @property
    def fits(self) -> tuple[str, ...]:
        """The narrower dtypes that hold every value."""
        return self._narrowing.result(self.partial)

    def bins(self, real: Array) -> tuple[tuple[int, ...], tuple[tuple[int, int, int], ...]]:
        """Return the number of values in equal parts of their range; and the number with each exponent, by sign."""
        if not self.partial.finite:
            return (), ()
        low, high = self.partial.min, self.partial.max
        floating = real.dtype.kind == "f"
        count = 1 if low == high else RANGE_PARTS
        if not floating and high - low < RANGE_PARTS:
            count = int(high - low) + 1  # one for each integer
        counts = np.zeros(count, np.int64)
        fields: Counter[int] = Counter()
        wide = real.itemsize > 4 or not (floating or real.itemsize < 4)
        for chunk in _split(real):
            self._work.go_on()
            numbers = chunk.astype(np.float64 if wide else np.float32, copy=False)
            counts += _counted(numbers, low, high, count)
            fields.update(_fields(numbers))
        sizes = _exponents(fields, 1023 if wide else 127, self.partial.zeros)
        return tuple(counts.tolist()), sizes


def _counted(numbers: Array, low: float, high: float, count: int) -> Array:
    """Return the number in each part of the range; neither NaN nor infinities."""
    if low == high:
        return np.array([np.count_nonzero(numbers == low)])
    if high / 2 - low / 2 > 1e38:  # quartered: the largest float64 minus the smallest would be infinite
        numbers, low, high = numbers.astype(np.float64) / 4, low / 4, high / 4
    known = np.isfinite(numbers)
    numbers = numbers if known.all() else numbers[known]
    kind = numbers.dtype.type
    places = ((numbers - kind(low)) * kind(count) / kind(high - low)).astype(np.int64)
    return np.bincount(np.minimum(places, count - 1, out=places), minlength=count)


def _fields(numbers: Array) -> dict[int, int]:
    """Return the number of times that the bits of sign and exponent occur, as one number."""
    if numbers.dtype == np.float32:
        found = numbers.view(np.uint32) >> 23
    else:
        found = (numbers.view(np.uint64) >> np.uint64(52)).view(np.int64)
    return {field: n for field, n in enumerate(np.bincount(found).tolist()) if n}


def _exponents(fields: Counter[int], bias: int, zeros: int) -> tuple[tuple[int, int, int], ...]:
    """Return those as exponents of ``frexp``, with the numbers of negative and of positive values."""
    negative = 2 * (bias + 1)
    below: Counter[int] = Counter()
    above: Counter[int] = Counter()
    for field, number in fields.items():
        exponent = field % negative
        if exponent < negative - 1:  # that of NaN and infinities
            (below if field >= negative else above)[exponent - bias + 1] += number
    subnormal = 1 - bias  # with them the zeros, of both signs
    for counter in (above, below):
        gone = min(zeros, counter[subnormal])
        counter[subnormal] -= gone
        zeros -= gone
    return tuple([(each, below[each], above[each]) for each in sorted({*+below, *+above})])


def pooled(table: Array, whole: tuple[int, int], most: tuple[int, int], how: str, sampled: bool = False) -> Picture:
    """Return a table of some of the rows and columns of ``whole``, in at most ``most`` rows and columns of cells.

    Where there are more than that, all cells are used: some then stand for one row or column more than others.
    """
    if not table.size or not min(most):
        return Picture((), 1.0, 1.0, how)
    down, across = (_starts(size, limit) for size, limit in zip(table.shape, most, strict=True))
    cells = tuple([tuple(row) for row in _smaller(table, down, across, how).tolist()])
    return Picture(cells, whole[0] / len(down), whole[1] / len(across), how, sampled)


def wrapped(values: Array, whole: int, most: tuple[int, int], how: str, sampled: bool = False) -> Picture:
    """Return numbers of one dimension, written in lines from left to right."""
    count = values.size
    if not count or not min(most):
        return Picture((), 1.0, 1.0, how)
    step = -(-count // (most[0] * most[1]))  # elements in a cell
    starts = np.arange(0, count, step)
    row: list[float | None] = _smaller(values.reshape(1, -1), np.zeros(1, np.int64), starts, how)[0].tolist()
    columns = min(len(row), _columns(len(row), most))
    row += [None] * (-len(row) % columns)
    lines = [tuple(row[at : at + columns]) for at in range(0, len(row), columns)]
    return Picture(tuple(lines), 1.0, step * whole / count, how, sampled)


def _columns(cells: int, most: tuple[int, int]) -> int:
    """Cells in a line, so that each can be drawn as large as possible."""
    for times in range(8, 1, -1):
        if (most[0] // times) * (most[1] // times) >= cells:
            return most[1] // times
    return most[1]


def _starts(size: int, most: int) -> Array:
    """Return where each of at most ``most`` cells begins; their lengths differ by at most one index."""
    cells = min(size, most)
    starts: Array = np.arange(cells, dtype=np.int64) * size // cells
    return starts


def _smaller(table: Array, down: Array, across: Array, how: str) -> Array:
    """Return the rows and columns from each of these starts to the next one put together."""
    numbers = _float(table)
    if (len(down), len(across)) == table.shape:
        return numbers
    with np.errstate(all="ignore"):
        if how == "mean":
            sums = _together(np.add, numbers, down, across)
            heights, widths = (
                np.diff([*starts, size]) for size, starts in zip(table.shape, (down, across), strict=True)
            )
            means: Array = sums / np.outer(heights, widths).astype(sums.dtype)
            return means
        high, low = (_together(each, numbers, down, across) for each in (np.maximum, np.minimum))
        return np.where(high < -low, low, high)  # what is NaN in one is so in both


def _together(how: np.ufunc, numbers: Array, down: Array, across: Array) -> Array:
    rows = how.reduceat(numbers, down, axis=0) if len(down) < numbers.shape[0] else numbers
    found: Array = how.reduceat(rows, across, axis=1) if len(across) < numbers.shape[1] else rows
    return found


def _float(table: Array) -> Array:
    if table.dtype.kind == "f":
        return table
    return table.astype(np.float64 if table.itemsize > 2 else np.float32)
