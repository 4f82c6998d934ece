"""Holds tensors that were computed of others against a computation of its own, piece by piece.

Nothing that computed them is used. A masked number must have the bits of the original, or be the zero that a product
with zero gives; sums are added in another order, and each number must be the one that they give, or the next to it.
Orthogonal matrices are found in another way: by eigenvalues, from the other side, and one reflection after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING

from ckptdoctor.casting.cast import one_thread
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.computing.streams import Read, Stream, bits_of, tensor, whole
from ckptdoctor.edits.computing import CAYLEY, HOUSEHOLDER, LOW_RANK, MASKED, MATRIX_EXP, SCALED, TURNED
from ckptdoctor.edits.elements import Calculated
from ckptdoctor.errors import WriteError

if TYPE_CHECKING:
    import torch

_PIECE = 3 << 15  # numbers that are compared at once: not as many as were computed at once
_SUMS = 2.0**-44  # what sums of float64 may differ by, whatever the order

Written = Callable[[int, int], bytes]  # (first byte, length)


def require_calculated(given: Calculated, read: Read, written: Written) -> None:
    """Raises WriteError unless ``written`` gives the bytes of the tensor; ``read`` gives those of its parts."""
    at = 0
    with one_thread(prod(given.shape)):
        for right, count in _FORMS[given.form](given, read, written) if prod(given.shape) else ():
            if not right:
                raise WriteError(
                    f"A number of the output is not what it is computed of ({given.form}); it was thrown away."
                )
            at += count
    if at != prod(given.shape):
        raise WriteError("A tensor of the output has not as many numbers as it is computed of; it was thrown away.")


def _there(given: Calculated, written: Written, at: int, count: int) -> torch.Tensor:
    return tensor(written(at * given.width, count * given.width), given.dtype)


def _masked(given: Calculated, read: Read, written: Written) -> Iterator[tuple[bool, int]]:
    import torch

    original, mask = (Stream(part, kind, read) for part, kind in zip(given.parts, given.kinds, strict=True))
    total = prod(given.shape)
    for at in range(0, total, _PIECE):
        count = min(_PIECE, total - at)
        old, new = original.take(count), _there(given, written, at, count)
        kept = mask.take(count).to(old.dtype)
        same = bits_of(old, given.dtype) == bits_of(new, given.dtype)
        zero = (new == 0) & (new.signbit() == (old.signbit() ^ kept.signbit())) & old.isfinite()
        other = (kept != 0) & (kept != 1)
        product = torch.where(other, (old.double() * kept.double()), 0.0)
        found = torch.where(kept == 0, zero, torch.where(kept == 1, same, product.to(old.dtype) == new))
        odd = product.isnan() | old.isnan() | kept.isnan() | ((kept == 0) & ~old.isfinite())
        yield bool(torch.where(odd, new.isnan(), found).all().item()), count


def _low_rank(given: Calculated, read: Read, written: Written) -> Iterator[tuple[bool, int]]:
    """The transposed product of the transposed factors, their indices the other way round."""
    _, a, b = given.kinds
    left_kind, right_kind = (b, a) if given.form == LOW_RANK else (a, b)
    rows, rank = given.parts[1].shape
    columns = given.parts[2].shape[1]
    right = whole(given.parts[2], right_kind, read).view(rank, columns).flip(0).t().contiguous()
    weight, left = Stream(given.parts[0], given.kinds[0], read), Stream(given.parts[1], left_kind, read)
    most = right.abs().amax(0, keepdim=True)
    step = max(1, _PIECE // columns)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        factor = left.take(count * rank).double().view(count, rank).flip(1).t().contiguous()
        old = weight.take(count * columns).double().view(count, columns)
        sums = old + given.numbers[0] * (right @ factor).t()
        sizes = old.abs() + abs(given.numbers[0]) * (most @ factor.abs()).t()
        there = _there(given, written, first * columns, count * columns).view(count, columns)
        yield _near(sums, there, sizes * _SUMS, given.dtype), count * columns


def _scaled(given: Calculated, read: Read, written: Written) -> Iterator[tuple[bool, int]]:
    import torch

    dim, shape = int(given.numbers[0]), given.shape
    factors = whole(given.parts[1], given.kinds[1], read)
    weight, total, inner = Stream(given.parts[0], given.kinds[0], read), prod(shape), prod(shape[dim + 1 :])
    for at in range(0, total, _PIECE):
        count = min(_PIECE, total - at)
        owner = torch.arange(at, at + count).div(inner, rounding_mode="floor") % shape[dim]
        found = factors[owner] * weight.take(count).double()
        yield _near(found, _there(given, written, at, count), found.abs() * _SUMS, given.dtype), count


def _orthogonal(given: Calculated, read: Read, written: Written) -> Iterator[tuple[bool, int]]:
    rows, columns = given.shape[-2:]
    size, count = max(rows, columns), rows * columns
    original, *bases = (Stream(part, kind, read) for part, kind in zip(given.parts, given.kinds, strict=True))
    for at in range(0, prod(given.shape), count):
        numbers = original.take(count).double().view(rows, columns)
        tall = numbers if rows >= columns else numbers.t()
        found, sums = _MAPS[given.form](tall), _SUMS * size * (1 + tall.abs().sum(0).max())
        for base in bases:
            matrix = base.take(size * size).double().view(size, size)
            found, sums = (found.t() @ matrix.t()).t(), sums * matrix.abs().sum(1).max()
        found = (found if rows >= columns else found.t()).contiguous().view(-1)
        yield _near(found, _there(given, written, at, count), sums.expand(count), given.dtype), count


def _skew(tall: torch.Tensor) -> torch.Tensor:
    import torch

    rows, columns = tall.shape
    wide = torch.nn.functional.pad(tall, (0, rows - columns)).tril(-1)
    return wide.sub(wide.t())


def _by_eigenvalues(tall: torch.Tensor) -> torch.Tensor:
    """The exponential of a skew-symmetric matrix, of which i times it is Hermitian."""
    import torch

    values, vectors = torch.linalg.eigh(1j * _skew(tall))
    turned = torch.polar(torch.ones_like(values), -values)
    made: torch.Tensor = ((vectors * turned) @ vectors.mH).real
    return made[:, : tall.shape[1]]


def _from_the_right(tall: torch.Tensor) -> torch.Tensor:
    """The two factors of Cayley's map, which may change places."""
    import torch

    half = _skew(tall) / 2
    one = torch.eye(len(half), dtype=half.dtype)
    made: torch.Tensor = torch.linalg.solve(one - half, one + half, left=False)
    return made[:, : tall.shape[1]]


def _by_reflections(tall: torch.Tensor) -> torch.Tensor:
    """One reflection after another, the last first."""
    import torch

    made = torch.eye(len(tall), tall.shape[1], dtype=tall.dtype)
    for column in range(tall.shape[1] - 1, -1, -1):
        vector = tall[column:, column].clone()
        vector[0] = 1
        some = made[column:, column:]  # the rest has nothing where the vector has something
        some -= torch.outer(vector * (2 / vector.dot(vector)), vector @ some)
    return made * tall.diagonal().to(torch.int32)


_MAPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    MATRIX_EXP: _by_eigenvalues,
    CAYLEY: _from_the_right,
    HOUSEHOLDER: _by_reflections,
}


def _near(found: torch.Tensor, there: torch.Tensor, sums: torch.Tensor, dtype: str) -> bool:
    """Whether these are the numbers, each rounded to the dtype or to the number next to it."""
    import torch

    kind, wide = BY_NAME[dtype], there.double()
    least = 2.0 ** (2 - 2 ** (kind.exponent - 1) - kind.mantissa)  # the smallest number above 0
    if bool(((wide - found).abs_() <= found.abs().mul_(2.0**-kind.mantissa).add_(sums)).all().item()):
        return True  # the usual case: neither NaN nor infinity, nor anything near 0
    limit = 2.0 ** (2 ** (kind.exponent - 1) - 1) * (2 - 2.0**-kind.mantissa)  # the largest one
    near = (wide - found).abs() <= (found.abs() * 2.0**-kind.mantissa).clamp_min(least) + sums
    over = wide.isinf() & (found.abs() >= limit) & (wide.signbit() == found.signbit())
    same = (found.isnan() & wide.isnan()) | (wide == found)
    return bool((torch.where(found.isfinite() & wide.isfinite(), near, over | same)).all().item())


_FORMS: dict[str, Callable[[Calculated, Read, Written], Iterator[tuple[bool, int]]]] = {
    MASKED: _masked,
    LOW_RANK: _low_rank,
    TURNED: _low_rank,
    SCALED: _scaled,
    **dict.fromkeys(_MAPS, _orthogonal),
}
