"""Two runs of values are compared chunk by chunk in memory that stays in the cache: how far apart, and of what rank."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite, prod, sqrt
from typing import TYPE_CHECKING, Any

from ckptdoctor.checkpoint import Source, Tensor
from ckptdoctor.checkpoint.dtypes import DType, cast_loses_values
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.differences import Numbers, Pair, Rank, Ranks, Verdict
from ckptdoctor.formats.compose.strided import segments
from ckptdoctor.noun import noun
from ckptdoctor.values.diff_bytes import ByteRun, Feed, Files, leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


CHUNK = 1 << 17  # values at a time: fewer calls into torch tell more than what does not fit the nearest cache
_LARGEST = 16  # bytes of the widest dtype
# what float32 holds exactly; everything else is computed with in float64, complex numbers in complex128
_NARROW = frozenset({"float32", "bfloat16", "float16", "int8", "uint8", "int16", "uint16", "bool"})
_TINY = 1e-24  # sums of squares below it have lost digits in float32

_COMPUTED = ("float", "complex", "int", "uint", "bool")
_WIDTHS = frozenset({8, 16, 32, 64, 128})


def why_opaque(dtype: DType) -> str | None:
    """Why torch computes nothing with values of a dtype; None where it does."""
    import torch

    odd = dtype.name.endswith("_x2") or (dtype.kind in ("int", "uint") and dtype.name.lstrip("uint") not in _NUMBERS)
    if dtype.kind not in _COMPUTED or dtype.bits not in _WIDTHS or odd:
        return f"{dtype.name} is a packed dtype"
    return None if hasattr(torch, dtype.name) else f"torch {torch.__version__} has no {dtype.name}"


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
        import torch

        self._files = a, b
        self._work = work or Work()
        self._tolerance = tolerance
        self._buffers = bytearray(CHUNK * _LARGEST), bytearray(CHUNK * _LARGEST)
        self._raw = [torch.frombuffer(buffer, dtype=torch.uint8) for buffer in self._buffers]
        self._floats = [torch.empty(CHUNK) for _ in range(3)]

    def measure(self, run: ByteRun) -> Numbers:
        """The distance of both sides of a run."""
        from functools import reduce
        from operator import add

        feeds = Feed(run.data_a, self._files[0]), Feed(run.data_b, self._files[1])
        parts = (self._chunk(run, feeds, min(CHUNK, run.elements - first)) for first in range(0, run.elements, CHUNK))
        return reduce(add, parts, Numbers())

    def values(self, feed: Feed, dtype: DType, count: int, side: int) -> torch.Tensor:
        """The next values of a feed as they are stored; they are valid until the next ones are asked for."""
        import torch

        size = count * dtype.bits // 8
        feed.fill(memoryview(self._buffers[side])[:size])
        return self._raw[side][:size].view(getattr(torch, dtype.name))

    def _chunk(self, run: ByteRun, feeds: tuple[Feed, Feed], count: int) -> Numbers:
        a = self.values(feeds[0], run.a.dtype, count, 0)
        b = self.values(feeds[1], run.b.dtype, count, 1)
        self._work.advance(count * (run.a.dtype.bits + run.b.dtype.bits) // 8)
        rounded = run.a.dtype == run.b.dtype or _converted(a, b, run.a.dtype, run.b.dtype)
        flags = _flags(run.a), _flags(run.b)
        if narrow(run.a.dtype) and narrow(run.b.dtype) and not any(flags):
            found = self._quick(self._float(a, 0), self._float(b, 1), rounded)
            if found is not None:
                return found
        return _careful(_wide(a, flags[0]), _wide(b, flags[1]), rounded, self._tolerance)

    def _float(self, values: torch.Tensor, side: int) -> torch.Tensor:
        """The values as float32."""
        import torch

        return values if values.dtype == torch.float32 else self._floats[side][: values.numel()].copy_(values)

    def _quick(self, a: torch.Tensor, b: torch.Tensor, rounded: bool) -> Numbers | None:
        """In float32; None where values are not finite, or too large or small for that."""
        import torch

        apart = torch.sub(a, b, out=self._floats[2][: a.numel()])
        square, square_a, square_b = (torch.dot(each, each).item() for each in (apart, a, b))
        if not isfinite(square + square_a + square_b):
            return None
        changed, largest = _nonzero(apart.abs_())
        if changed and min(square, square_a, square_b) < _TINY:
            return None
        beyond = changed
        if self._tolerance and changed:
            room = b.abs().mul_(self._tolerance.rtol).add_(self._tolerance.atol)
            beyond = int((apart > room).sum().item())
        return Numbers(
            elements=a.numel(),
            changed=changed,
            beyond=beyond,
            largest=largest,
            total=apart.sum().item(),
            square=square,
            square_a=square_a,
            square_b=square_b,
            rounded=rounded,
        )


def _nonzero(sizes: torch.Tensor) -> tuple[int, float]:
    """The number that are not zero, and the largest, of float32 without signs: as integers, which is faster."""
    import torch

    whole = sizes.view(torch.int32)
    least, most = torch.aminmax(whole)
    count = whole.numel() if least.item() else int(torch.count_nonzero(whole).item())
    return count, float(most.view(torch.float32).item())


def narrow(dtype: DType) -> bool:
    """Whether float32 holds every value of a dtype."""
    return dtype.name in _NARROW or dtype.name.startswith("float8")


def _flags(tensor: Any) -> dict[str, object]:
    """The lazy conjugations and negations that are set."""
    return {name: value for name, value in tensor.details if name in ("conj", "neg") and value}


def _wide(values: torch.Tensor, flags: dict[str, object]) -> torch.Tensor:
    """As float64 or complex128, conjugated and negated as it should be."""
    import torch

    made = values.to(torch.complex128 if values.is_complex() else torch.float64)
    made = made.conj().resolve_conj() if flags.get("conj") else made
    return -made if flags.get("neg") else made


def _careful(a: torch.Tensor, b: torch.Tensor, rounded: bool, tolerance: Tolerance) -> Numbers:
    """In float64, with NaNs and infinities counted: equal ones are no difference."""
    import torch

    nan_a, nan_b = a.isnan(), b.isnan()
    same = (a == b) | (nan_a & nan_b)
    odd = nan_a ^ nan_b
    apart = (a - b).abs().masked_fill(same | odd, 0.0)
    finite = a.isfinite() & b.isfinite()
    room = tolerance.atol + tolerance.rtol * b.abs()
    beyond = ~same & ~(finite & (apart <= room))

    def squares(values: torch.Tensor) -> float:
        sizes = torch.where(finite, values, torch.zeros_like(values)).abs()
        return float((sizes * sizes).sum().item())

    return Numbers(
        elements=a.numel(),
        changed=int((~same).sum().item()),
        beyond=int(beyond.sum().item()),
        odd=int(odd.sum().item()),
        largest=float(apart.max().item()) if a.numel() else 0.0,
        total=_total(apart),
        square=squares(apart),
        square_a=squares(a),
        square_b=squares(b),
        nan_a=int(nan_a.sum().item()),
        nan_b=int(nan_b.sum().item()),
        rounded=rounded,
    )


def _total(apart: torch.Tensor) -> float:
    total = float(apart.sum().item())
    return total if isfinite(total) else inf


def _converted(a: torch.Tensor, b: torch.Tensor, dtype_a: DType, dtype_b: DType) -> bool:
    """Whether the narrower values are what converting the wider ones gives."""
    if dtype_a.kind not in ("float", "complex") or dtype_b.kind != dtype_a.kind:
        return False
    one, other = (a.to(b.dtype), b) if cast_loses_values(dtype_a, dtype_b) else (b.to(a.dtype), a)
    if one.element_size() == 1:  # comparing is not written for floats of 8 bits
        one, other = one.float(), other.float()
    return bool(((one == other) | ((one != one) & (other != other))).all().item())


DIRECTIONS = 72
_MATRICES = 6  # matrices that are looked at
_SMALLEST = 64  # rows and columns: below it every rank is a low one
_LOW = 4  # a low rank is at most the fourth part of the full one
_REST = 1e-3  # of the squared norm may be left over, besides what rounding explains
_WIDE = CHUNK  # columns that fit the buffers


def ranks(
    pairs: list[Pair],
    a: Source,
    b: Source,
    swapped: tuple[bool, bool],
    work: Work,
) -> Ranks | None:
    """The ranks of what changed in the largest matrices; None where none is large enough.

    Raises StoppedError once nobody wants the rest of ``work``, in which nothing of this is counted.
    """
    wanted = sorted(filter(_eligible, pairs), key=lambda pair: -pair.a.numel)[:_MATRICES]
    if not wanted:
        return None
    low, full = [], []
    with Files(a) as files_a, Files(b) as files_b:
        meter = DifferenceMeter(files_a, files_b, Tolerance())
        for pair in wanted:
            found = _rank(pair, meter, files_a, files_b, swapped, work)
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
    pair: Pair, meter: DifferenceMeter, a: Files, b: Files, swapped: tuple[bool, bool], work: Work
) -> Rank | None:
    """The rank of the difference of two matrices; None where it is not low, as merged adapters change one.

    It is told by a randomized sketch: the difference is multiplied with a few random directions (Halko, Martinsson and
    Tropp, 2011). What these directions capture of its squared norm is what a matrix of that rank could hold; the rest
    must be no more than rounding.
    """
    import torch

    shape = pair.a.shape[0], prod(pair.a.shape[1:])
    directions = min(DIRECTIONS, min(shape) // 2)
    numbers = pair.values.numbers if pair.values is not None else None
    assert numbers is not None
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(shape[1], directions, generator=generator)
    scale = 1 / sqrt(numbers.square / (shape[0] * shape[1]))  # so that neither rounding nor overflow decides
    image = torch.cat([apart.mul_(scale) @ random for apart in _rows(pair, shape, meter, a, b, swapped, work)])
    basis, _ = torch.linalg.qr(image)
    inner = torch.zeros(directions, shape[1])
    first = 0
    for apart in _rows(pair, shape, meter, a, b, swapped, work):
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
    meter: DifferenceMeter,
    a: Files,
    b: Files,
    swapped: tuple[bool, bool],
    work: Work,
) -> Iterator[torch.Tensor]:
    """The difference in groups of whole rows, in float32."""
    feeds = Feed(segments(_plain(pair, 0), swapped[0]), a), Feed(segments(_plain(pair, 1), swapped[1]), b)
    step = CHUNK // shape[1]
    for first in range(0, shape[0], step):
        work.go_on()
        count = min(step, shape[0] - first)
        one = meter.values(feeds[0], pair.a.dtype, count * shape[1], 0).float()
        other = meter.values(feeds[1], pair.b.dtype, count * shape[1], 1).float()
        yield (other - one).view(count, shape[1])


def _plain(pair: Pair, side: int) -> Tensor:
    return replace((pair.a, pair.b)[side], subclass=None)
