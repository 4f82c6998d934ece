"""The values of tensors that are computed of others: what ``edits.computing`` says of each form, as code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING

from ckptdoctor.casting.cast import one_thread
from ckptdoctor.computing.streams import PIECE, Read, Stream, data_of, whole
from ckptdoctor.edits.computing import CAYLEY, HOUSEHOLDER, LOW_RANK, MASKED, MATRIX_EXP, SCALED, TURNED
from ckptdoctor.edits.elements import Calculated
from ckptdoctor.errors import WriteError

if TYPE_CHECKING:
    import torch


def calculated(given: Calculated, read: Read) -> Iterator[bytes]:
    """The bytes of the tensor."""
    if prod(given.shape):
        with one_thread(prod(given.shape)):
            yield from _FORMS[given.form](given, read)


def _masked(given: Calculated, read: Read) -> Iterator[bytes]:
    """As ``BasePruningMethod.apply_mask`` has it (torch 2.13, nn/utils/prune.py): in the dtype of the original."""
    original, mask = (Stream(part, kind, read) for part, kind in zip(given.parts, given.kinds, strict=True))
    left = prod(given.shape)
    while left:
        count = min(left, PIECE)
        numbers = original.take(count)
        yield data_of(mask.take(count).to(dtype=numbers.dtype) * numbers)
        left -= count


def _low_rank(given: Calculated, read: Read) -> Iterator[bytes]:
    rows, rank = given.parts[1].shape
    columns = given.parts[2].shape[1]
    right = whole(given.parts[2], _kind(given, 2), read).view(rank, columns)
    weight, left = Stream(given.parts[0], given.kinds[0], read), Stream(given.parts[1], _kind(given, 1), read)
    step = max(1, PIECE // columns)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        numbers = weight.take(count * columns).double().view(count, columns)
        numbers.addmm_(left.take(count * rank).double().view(count, rank), right, alpha=given.numbers[0])
        yield data_of(rounded(numbers, given.dtype))


def _kind(given: Calculated, side: int) -> str:
    """The dtype of the left or right factor: B is the left one (``kinds`` are in the order weight, A, B)."""
    return given.kinds[3 - side if given.form == LOW_RANK else side]


def _scaled(given: Calculated, read: Read) -> Iterator[bytes]:
    dim, shape = int(given.numbers[0]), given.shape
    factors = whole(given.parts[1], given.kinds[1], read)
    weight = Stream(given.parts[0], given.kinds[0], read)
    row = prod(shape[1:])
    step = max(1, PIECE // row)
    for first in range(0, shape[0], step):
        count = min(step, shape[0] - first)
        numbers = weight.take(count * row).double()
        if dim:
            found = numbers.view(count, shape[1], -1) * factors.view(1, -1, 1)
        else:
            found = numbers.view(count, row) * factors[first : first + count].view(-1, 1)
        yield data_of(rounded(found, given.dtype))


def _orthogonal(given: Calculated, read: Read) -> Iterator[bytes]:
    """As ``_Orthogonal.forward`` has it (torch 2.13, nn/utils/parametrizations.py), one matrix after another."""
    rows, columns = given.shape[-2:]
    size = max(rows, columns)
    original, *bases = (Stream(part, kind, read) for part, kind in zip(given.parts, given.kinds, strict=True))
    for _ in range(prod(given.shape[:-2])):
        numbers = original.take(rows * columns).double().view(rows, columns)
        if not bool(numbers.isfinite().all()):
            raise WriteError("An orthogonal matrix is not computed of NaN or infinities; nothing was written.")
        made = _MAPS[given.form](numbers if rows >= columns else numbers.t())
        for base in bases:
            made = base.take(size * size).double().view(size, size) @ made
        yield data_of(rounded((made if rows >= columns else made.t()).contiguous(), given.dtype))


def _skew(tall: torch.Tensor) -> torch.Tensor:
    """The skew-symmetric matrix whose lower triangle is that of a matrix with no more columns than rows."""
    import torch

    rows, columns = tall.shape
    lower = torch.zeros(rows, rows, dtype=tall.dtype)
    lower[:, :columns] = tall.tril()
    return lower - lower.t()


def _exponential(tall: torch.Tensor) -> torch.Tensor:
    return _skew(tall).matrix_exp()[:, : tall.shape[1]]


def _cayley(tall: torch.Tensor) -> torch.Tensor:
    import torch

    half = _skew(tall) / 2
    one = torch.eye(len(half), dtype=half.dtype)
    made: torch.Tensor = torch.linalg.solve(one - half, one + half)
    return made[:, : tall.shape[1]]


def _householder(tall: torch.Tensor) -> torch.Tensor:
    import torch

    below = tall.tril(-1)
    factors = 2 / (1 + below.square().sum(0))
    made: torch.Tensor = torch.linalg.householder_product(below, factors)
    return made * tall.diagonal().trunc()


_MAPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    MATRIX_EXP: _exponential,
    CAYLEY: _cayley,
    HOUSEHOLDER: _householder,
}
_FORMS: dict[str, Callable[[Calculated, Read], Iterator[bytes]]] = {
    MASKED: _masked,
    LOW_RANK: _low_rank,
    TURNED: _low_rank,
    SCALED: _scaled,
    **dict.fromkeys(_MAPS, _orthogonal),
}


# ---- numbers of float64 rounded once: to the nearest that a dtype has, ties to even


# the lower bits of a float32, without the highest of those that a half lacks: 0 wherever it lies between two halves
_LOWER = {"bfloat16": 0x7FFF, "float16": 0x0FFF}


def rounded(numbers: torch.Tensor, dtype: str) -> torch.Tensor:
    """The nearest numbers of ``dtype``.

    torch casts float64 to a half by way of float32, and so rounds twice, which is another number only where the first
    rounding ends half way between two halves. There the float32 gets an odd last bit, which leaves the second rounding
    as it would be without the first (S. Boldo and G. Melquiond, "Emulation of FMA and correctly rounded sums: proved
    algorithms using rounding to odd", 2008).
    """
    import torch

    kind: torch.dtype = getattr(torch, dtype)
    if dtype not in _LOWER:
        return numbers.to(kind)
    near = numbers.to(torch.float32)
    made = near.to(kind)
    between = ((near.view(torch.int32) & _LOWER[dtype]) == 0).view(-1).nonzero().view(-1)
    if between.numel():
        exact, first = numbers.reshape(-1)[between], near.view(-1)[between]
        rest = exact - first.double()
        toward = torch.where(rest > 0, float("inf"), float("-inf")).to(torch.float32)
        odd = torch.where((rest != 0) & ~rest.isnan(), torch.nextafter(first, toward), first)
        made.view(-1)[between] = odd.to(kind)
    return made
