"""Looks at one tensor: a window of its values, its statistics and extremes, and a picture of a slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.facts.looks import Look, Picture, Window
from ckptdoctor.values.boxes import Boxes, Picks, plain
from ckptdoctor.values.chunks import Measure
from ckptdoctor.values.diff_bytes import StoppedError
from ckptdoctor.values.extremes import along, largest
from ckptdoctor.values.narrowing import Narrowing
from ckptdoctor.values.partial import Partial
from ckptdoctor.values.rows import duplicated_rows
from ckptdoctor.values.sampling import sample
from ckptdoctor.values.strips import CHUNK
from ckptdoctor.values.summing_up import summed_up

if TYPE_CHECKING:
    import torch

BINS = 240  # parts of the range of values: a number that many widths divide
EXACT = 1 << 24  # elements up to which a tensor is read as a whole
_EXACT_BYTES = 64 << 20
_SAMPLE = 1 << 22  # elements of a larger one that are looked at, in so many reads
_READS = 512
_FAR_AWAY = 1 << 18, 8  # the same where each read is a request over a network

Going = Callable[[], bool]


def window(tensor: Tensor, box: Sequence[range], boxes: Boxes) -> Window:
    """The values of a box."""
    values = boxes.read(plain(tensor), [(each,) for each in box])
    return Window(tuple(box), tuple(values.reshape(-1).tolist()))


def look(tensor: Tensor, boxes: Boxes, going: Going, distant: bool = False) -> Look:
    """Statistics, histograms and extremes. Raises StoppedError once ``going`` says False."""
    tensor = plain(tensor)
    picks = _picks(tensor, distant)
    values = boxes.read(tensor, picks)
    whole = values.numel() == tensor.numel
    real = _real(values)
    statistics = _Statistics(tensor.dtype.name if whole else "", going)
    for chunk in real.split(CHUNK):
        statistics.add(chunk)
    rows = duplicated_rows(real, tensor.shape) if whole and not values.is_complex() else None
    numbers = summed_up(statistics.partial, fits=statistics.fits, duplicated_rows=rows)
    bins, sizes = statistics.bins(real)
    sizes_of_values = _sizes(values)
    found = largest(values, sizes_of_values, picks, going)
    return Look(
        values.numel(), tensor.numel, numbers, bins, sizes, found, along(values, sizes_of_values, picks, going)
    )


def picture(
    tensor: Tensor, box: Sequence[range], rows: int | None, shape: tuple[int, int], how: str, boxes: Boxes
) -> Picture:
    """A slice as at most ``shape`` cells: the dimension ``rows`` goes down (None: there is one alone, which wraps)."""
    from ckptdoctor.values.pooling import pooled, wrapped

    tensor = plain(tensor)
    counts = [len(each) for each in box]
    whole = prod(counts)
    values = boxes.read(tensor, _inside(box, tensor, EXACT if whole <= EXACT else _SAMPLE))
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
    """How far apart elements lie; of a tensor in pieces, as if it were in one."""
    return tensor.stride if len(tensor.stride) == len(tensor.shape) else contiguous_stride(tensor.shape)


def _picks(tensor: Tensor, distant: bool) -> Picks:
    exact = min(EXACT, _EXACT_BYTES * 8 // tensor.dtype.bits)
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

    def __init__(self, narrowed: str, going: Going) -> None:
        self.partial = Partial()
        self._measure = Measure(CHUNK)
        self._narrowing = Narrowing(narrowed)
        self._going = going

    def add(self, chunk: torch.Tensor) -> None:
        """Count in what there is to know."""
        if not self._going():
            raise StoppedError
        self._measure.add(chunk, self.partial)
        if self._narrowing.left and chunk.dtype.is_floating_point:
            self._narrowing.add(chunk)

    @property
    def fits(self) -> tuple[str, ...]:
        """The narrower dtypes that hold every value."""
        return self._narrowing.result(self.partial)

    def bins(self, real: torch.Tensor) -> tuple[tuple[int, ...], tuple[tuple[int, int, int], ...]]:
        """How many values lie in equal parts of their range; and how many have each exponent, by sign."""
        import torch

        if not self.partial.finite:
            return (), ()
        low, high = self.partial.min, self.partial.max
        count = BINS
        if not (real.is_floating_point() or real.is_complex()) and high - low < BINS:
            count = int(high - low) + 1  # one for each integer
        counts = torch.zeros(count, dtype=torch.float64)
        below: Counter[int] = Counter()
        above: Counter[int] = Counter()
        for chunk in real.split(CHUNK):
            if not self._going():
                raise StoppedError
            numbers = chunk.double() if chunk.dtype.itemsize > 4 or not chunk.is_floating_point() else chunk.float()
            if self.partial.finite < self.partial.count:
                numbers = numbers[torch.isfinite(numbers)]
            counts += _counted(numbers, low, high, count)
            _exponents(numbers[numbers < 0], below)
            _exponents(numbers[numbers > 0], above)
        sizes = [(each, below[each], above[each]) for each in sorted({*below, *above})]
        return tuple([int(each) for each in counts.tolist()]), tuple(sizes)


def _counted(numbers: torch.Tensor, low: float, high: float, count: int) -> torch.Tensor:
    import torch

    if low == high:
        counts = torch.zeros(count, dtype=torch.float64)
        counts[0] = numbers.numel()
        return counts
    if high / 2 - low / 2 > 1e38:  # halved: the largest float64 minus the smallest would be infinite
        numbers, low, high = numbers.double() / 4, low / 4, high / 4
    return torch.histc(numbers, count, low, high).double()


def _exponents(numbers: torch.Tensor, found: Counter[int]) -> None:
    import torch

    if numbers.numel():
        exponents = torch.frexp(numbers).exponent
        least = int(exponents.min().item())
        found.update({e: n for e, n in enumerate(torch.bincount(exponents - least).tolist(), least) if n})
