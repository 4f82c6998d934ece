"""Looks at one tensor: a window of its values, its statistics and extremes, and a picture of a slice made smaller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.facts.values import Look, Picture, Window
from ckptdoctor.values.chunks import ChunkMeasure
from ckptdoctor.values.extremes import along, largest, sample
from ckptdoctor.values.flat_chunks import CHUNK, UnreadError
from ckptdoctor.values.partial import Partial
from ckptdoctor.values.regions import Boxes, Picks, plain
from ckptdoctor.values.summing_up import Narrowing, duplicated_rows, summed_up

if TYPE_CHECKING:
    import torch


RANGE_PARTS = 240  # parts of the range of values: a number that many widths divide
READ_WHOLE = 1 << 24  # elements up to which a tensor is read as a whole
_EXACT_BYTES = 64 << 20
_SAMPLE = 1 << 22  # elements of a larger one that are looked at, in so many reads
_READS = 512
_FAR_AWAY = 1 << 18, 8  # the same where each read is a request over a network


def window(tensor: Tensor, box: Sequence[range], boxes: Boxes) -> Window:
    """The values of a box."""
    values = boxes.read(plain(tensor), [(each,) for each in box])
    return Window(tuple(box), tuple(values.reshape(-1).tolist()))


def look(tensor: Tensor, boxes: Boxes, work: Work, distant: bool = False) -> Look:
    """Statistics, histograms and extremes. Raises StoppedError once nobody wants the rest."""
    tensor = plain(tensor)
    picks = _picks(tensor, distant)
    values = boxes.read(tensor, picks)
    whole = values.numel() == tensor.numel
    real = _real(values)
    statistics = _Statistics(tensor.dtype.name if whole else "", work)
    for chunk in real.split(CHUNK):
        statistics.add(chunk)
    rows = duplicated_rows(real, tensor.shape) if whole and not values.is_complex() else None
    numbers = summed_up(statistics.partial, fits=statistics.fits, duplicated_rows=rows)
    bins, sizes = statistics.bins(real)
    absolute, nan = _sizes(values), bool(numbers.nan)
    return Look(
        looked=values.numel(),
        total=tensor.numel,
        values=numbers,
        bins=bins,
        sizes=sizes,
        extremes=largest(values, absolute, picks, nan, work),
        dimensions=along(values, absolute, picks, nan, work),
        floating=real.is_floating_point(),
    )


def picture(
    tensor: Tensor, box: Sequence[range], rows: int | None, shape: tuple[int, int], how: str, boxes: Boxes
) -> Picture:
    """A slice as at most ``shape`` cells: the dimension ``rows`` goes down (None: there is one alone, which wraps)."""
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
    """The same of the values of one tensor minus those of another of the same shape."""
    for each in (a, b):
        if each.layout != "strided":
            raise UnreadError(f"values of {each.layout} tensors may belong to other places")
    a, b = plain(a), plain(b)
    if a.shape != b.shape:
        raise UnreadError("they have other shapes")
    picks = _drawn(box, a)
    one, other = boxes[0].read(a, picks), boxes[1].read(b, picks)
    one, other = _wide(one), _wide(other)
    same = (one == other) | (one.isnan() & other.isnan())  # infinite ones, too
    return _pictured((one - other).masked_fill(same, 0), box, rows, shape, how)


def _wide(values: torch.Tensor) -> torch.Tensor:
    """So wide that little is lost by subtracting."""
    import torch

    return values.to(torch.complex128 if values.is_complex() else torch.float64)


def _drawn(box: Sequence[range], tensor: Tensor) -> Picks:
    """The part of a box that is read to draw it."""
    return _inside(box, tensor, READ_WHOLE if prod([len(each) for each in box]) <= READ_WHOLE else _SAMPLE)


def _pictured(
    values: torch.Tensor, box: Sequence[range], rows: int | None, shape: tuple[int, int], how: str
) -> Picture:
    counts = [len(each) for each in box]
    whole = prod(counts)
    numbers = values.abs() if values.is_complex() else values
    sampled = values.numel() < whole
    if rows is None:
        return wrapped(numbers.reshape(-1), whole, shape, how, sampled)
    if not whole:
        return Picture((), 1.0, 1.0, how)
    down = counts[rows]
    table = numbers.movedim(rows, 0).reshape(numbers.shape[rows], -1)
    return pooled(table, (down, whole // down), shape, how, sampled)


def _inside(box: Sequence[range], tensor: Tensor, most: int) -> Picks:
    """The indexes of a box that are read, where not all of them are."""
    kept = sample([len(each) for each in box], _stride(tensor), most, _READS)
    return [
        [range(each.start + run.start, each.start + run.stop) for run in runs]
        for each, runs in zip(box, kept, strict=True)
    ]


def _stride(tensor: Tensor) -> tuple[int, ...]:
    """The distance of elements in memory; of a tensor in pieces, as if it were in one."""
    return tensor.stride if len(tensor.stride) == len(tensor.shape) else contiguous_stride(tensor.shape)


def _picks(tensor: Tensor, distant: bool) -> Picks:
    exact = min(READ_WHOLE, _EXACT_BYTES * 8 // tensor.dtype.bits)
    most, reads = _FAR_AWAY if distant else (_SAMPLE, _READS)
    if distant:
        exact = most
    if tensor.numel <= exact:
        return [(range(size),) for size in tensor.shape]
    return sample(tensor.shape, _stride(tensor), most, reads)


def _real(values: torch.Tensor) -> torch.Tensor:
    import torch

    return (torch.view_as_real(values) if values.is_complex() else values).reshape(-1)


def _sizes(values: torch.Tensor) -> torch.Tensor:
    """Absolute values, as floats that are compared exactly."""
    import torch

    if values.dtype is torch.bool or values.dtype.itemsize < 4:
        return values.float().abs_()
    return values.double().abs_() if not values.is_floating_point() and not values.is_complex() else values.abs()


class _Statistics:
    """Counts in chunks of real numbers."""

    def __init__(self, narrowed: str, work: Work) -> None:
        self.partial = Partial()
        self._measure = ChunkMeasure(CHUNK)
        self._narrowing = Narrowing(narrowed)
        self._work = work

    def add(self, chunk: torch.Tensor) -> None:
        """Count in what there is to know."""
        self._work.go_on()
        self._measure.add(chunk, self.partial)
        if self._narrowing.left and chunk.dtype.is_floating_point:
            self._narrowing.add(chunk)

    @property
    def fits(self) -> tuple[str, ...]:
        """The narrower dtypes that hold every value."""
        return self._narrowing.result(self.partial)

    def bins(self, real: torch.Tensor) -> tuple[tuple[int, ...], tuple[tuple[int, int, int], ...]]:
        """The number of values in equal parts of their range; and the number with each exponent, by sign."""
        import torch

        if not self.partial.finite:
            return (), ()
        low, high = self.partial.min, self.partial.max
        count = 1 if low == high else RANGE_PARTS
        if not real.is_floating_point() and high - low < RANGE_PARTS:
            count = int(high - low) + 1  # one for each integer
        counts = torch.zeros(count, dtype=torch.float64)
        fields: Counter[int] = Counter()
        wide = real.dtype.itemsize > 4 or not (real.is_floating_point() or real.dtype.itemsize < 4)
        for chunk in real.split(CHUNK):
            self._work.go_on()
            numbers = chunk.double() if wide else chunk.float()
            counts += _counted(numbers, low, high, count)
            fields.update(_fields(numbers))
        sizes = _exponents(fields, 1023 if wide else 127, self.partial.zeros)
        return tuple([int(each) for each in counts.tolist()]), sizes


def _counted(numbers: torch.Tensor, low: float, high: float, count: int) -> torch.Tensor:
    """The number in each part of the range; neither NaN nor infinities."""
    import torch

    if low == high:
        return torch.tensor([float(torch.count_nonzero(numbers == low).item())], dtype=torch.float64)
    if high / 2 - low / 2 > 1e38:  # quartered: the largest float64 minus the smallest would be infinite
        numbers, low, high = numbers.double() / 4, low / 4, high / 4
    return torch.histc(numbers, count, low, high).double()


def _fields(numbers: torch.Tensor) -> dict[int, int]:
    """The number of times that the bits of sign and exponent occur, as one number."""
    import torch

    if numbers.dtype is torch.float32:
        found = (numbers.view(torch.int32) >> 23) & 0x1FF
    else:
        found = (numbers.view(torch.int64) >> 52) & 0xFFF
    return {field: n for field, n in enumerate(torch.bincount(found).tolist()) if n}


def _exponents(fields: Counter[int], bias: int, zeros: int) -> tuple[tuple[int, int, int], ...]:
    """Those as exponents of ``frexp``, with the numbers of negative and of positive values."""
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


def pooled(
    table: torch.Tensor, whole: tuple[int, int], most: tuple[int, int], how: str, sampled: bool = False
) -> Picture:
    """A table of some of the rows and columns of ``whole``, in at most ``most`` rows and columns of cells."""
    if not table.numel() or not min(most):
        return Picture((), 1.0, 1.0, how)
    down, across = -(-table.shape[0] // most[0]), -(-table.shape[1] // most[1])
    cells = tuple([tuple(row) for row in _smaller(table, down, across, how).tolist()])
    return Picture(cells, down * whole[0] / table.shape[0], across * whole[1] / table.shape[1], how, sampled)


def wrapped(values: torch.Tensor, whole: int, most: tuple[int, int], how: str, sampled: bool = False) -> Picture:
    """Numbers of one dimension, written in lines from left to right."""
    count = values.numel()
    if not count or not min(most):
        return Picture((), 1.0, 1.0, how)
    across = -(-count // (most[0] * most[1]))  # elements in a cell
    row: list[float | None] = _smaller(values.view(1, -1), 1, across, how)[0].tolist()
    columns = min(len(row), _columns(len(row), most))
    row += [None] * (-len(row) % columns)
    lines = [tuple(row[at : at + columns]) for at in range(0, len(row), columns)]
    return Picture(tuple(lines), 1.0, across * whole / count, how, sampled)


def _columns(cells: int, most: tuple[int, int]) -> int:
    """Cells in a line, so that each can be drawn as large as possible."""
    for times in range(8, 1, -1):
        if (most[0] // times) * (most[1] // times) >= cells:
            return most[1] // times
    return most[1]


def _smaller(table: torch.Tensor, down: int, across: int, how: str) -> torch.Tensor:
    """So many rows and columns put together; what is left over at the ends is a cell as well."""
    from torch.nn.functional import avg_pool2d, max_pool2d

    numbers, cell = _float(table), (down, across)
    if cell == (1, 1):
        return numbers
    image = numbers[None, None]
    if how == "mean":
        return avg_pool2d(image, cell, ceil_mode=True, count_include_pad=False)[0, 0]
    high: torch.Tensor = max_pool2d(image, cell, ceil_mode=True)[0, 0]
    low = -max_pool2d(-image, cell, ceil_mode=True)[0, 0]
    return high.where(~(high < -low), low)  # what is NaN in one is so in both


def _float(table: torch.Tensor) -> torch.Tensor:
    import torch

    if table.dtype in (torch.float32, torch.float64):
        return table
    return table.double() if table.dtype.itemsize > 2 else table.float()
