"""The values of tensors that are computed of others: what ``edits.computing`` says of each form, as code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil, log2, prod

import numpy as np

from ckptdoctor.casting.arrays import Array, widened
from ckptdoctor.casting.cast import cast_array
from ckptdoctor.computing.streams import PIECE, Read, Stream, whole
from ckptdoctor.edits.computing import CAYLEY, HOUSEHOLDER, LOW_RANK, MASKED, MATRIX_EXP, SCALED, TURNED
from ckptdoctor.edits.elements import Calculated
from ckptdoctor.errors import WriteError


def calculated(given: Calculated, read: Read) -> Iterator[bytes]:
    """Yield the bytes of the tensor."""
    pieces = _FORMS[given.form](given, read) if prod(given.shape) else iter(())
    while True:
        with np.errstate(all="ignore"):  # what is not finite in the parts is so in the tensor
            piece = next(pieces, None)
        if piece is None:
            return
        yield piece


def _masked(given: Calculated, read: Read) -> Iterator[bytes]:
    """Compute as ``BasePruningMethod.apply_mask`` does (torch 2.13, nn/utils/prune.py): in the original's dtype."""
    original, mask = (Stream(part, kind, read) for part, kind in zip(given.parts, given.kinds, strict=True))
    kind, left = original.dtype, prod(given.shape)
    while left:
        count = min(left, PIECE)
        kept = cast_array(mask.take(count), mask.dtype, kind)
        # of halves the product is exact in float32, so that it is rounded once, as in torch
        product = widened(kept, kind) * widened(original.take(count), kind)
        yield cast_array(product, str(product.dtype), kind).tobytes()
        left -= count


def _low_rank(given: Calculated, read: Read) -> Iterator[bytes]:
    rows, rank = given.parts[1].shape
    columns = given.parts[2].shape[1]
    right = whole(given.parts[2], _kind(given, 2), read).reshape(rank, columns)
    weight, left = Stream(given.parts[0], given.kinds[0], read), Stream(given.parts[1], _kind(given, 1), read)
    step = max(1, PIECE // columns)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        numbers = weight.doubles(count, columns)
        numbers += given.numbers[0] * (left.doubles(count, rank) @ right)
        yield rounded(numbers, given.dtype).tobytes()


def _kind(given: Calculated, side: int) -> str:
    """Return the dtype of the left or right factor: B is the left one (``kinds`` are in the order weight, A, B)."""
    return given.kinds[3 - side if given.form == LOW_RANK else side]


def _scaled(given: Calculated, read: Read) -> Iterator[bytes]:
    dim, shape = int(given.numbers[0]), given.shape
    factors = whole(given.parts[1], given.kinds[1], read)
    weight = Stream(given.parts[0], given.kinds[0], read)
    row = prod(shape[1:])
    step = max(1, PIECE // row)
    for first in range(0, shape[0], step):
        count = min(step, shape[0] - first)
        if dim:
            found = weight.doubles(count, shape[1], row // shape[1]) * factors.reshape(1, -1, 1)
        else:
            found = weight.doubles(count, row) * factors[first : first + count].reshape(-1, 1)
        yield rounded(found, given.dtype).tobytes()


def _orthogonal(given: Calculated, read: Read) -> Iterator[bytes]:
    """Compute as ``_Orthogonal.forward`` does (torch 2.13, nn/utils/parametrizations.py), matrix by matrix."""
    rows, columns = given.shape[-2:]
    size = max(rows, columns)
    original, *bases = (Stream(part, kind, read) for part, kind in zip(given.parts, given.kinds, strict=True))
    for _ in range(prod(given.shape[:-2])):
        numbers = original.doubles(rows, columns)
        if not np.isfinite(numbers).all():
            raise WriteError("An orthogonal matrix cannot be computed from NaN or infinities; nothing was written.")
        made = _MAPS[given.form](numbers if rows >= columns else numbers.T)
        for base in bases:
            made = base.doubles(size, size) @ made
        yield rounded(made if rows >= columns else made.T, given.dtype).tobytes()


def _skew(tall: Array) -> Array:
    """Return the skew-symmetric matrix whose lower triangle is that of a matrix with no more columns than rows."""
    rows, columns = tall.shape
    lower = np.zeros((rows, rows))
    lower[:, :columns] = np.tril(tall)
    lower -= lower.T.copy()
    return lower


# of the Padé approximant of degree 13, which is exact enough for matrices up to this norm (N. J. Higham, "The Scaling
# and Squaring Method for the Matrix Exponential Revisited", 2005)
_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_NORM = 5.371920351148152


def _exponential(tall: Array) -> Array:
    skew = _skew(tall)
    norm = float(np.abs(skew).sum(0).max())
    times = max(0, ceil(log2(norm / _NORM))) if norm > _NORM else 0
    made = _approximant(skew / 2.0**times)
    for _ in range(times):
        made = made @ made
    return made[:, : tall.shape[1]]


def _approximant(matrix: Array) -> Array:
    one, b = np.eye(len(matrix)), _PADE
    two = matrix @ matrix
    four = two @ two
    six = four @ two
    odd = six @ (b[13] * six + b[11] * four + b[9] * two) + b[7] * six + b[5] * four + b[3] * two + b[1] * one
    even = six @ (b[12] * six + b[10] * four + b[8] * two) + b[6] * six + b[4] * four + b[2] * two + b[0] * one
    odd = matrix @ odd
    made: Array = np.linalg.solve(even - odd, even + odd)
    return made


def _cayley(tall: Array) -> Array:
    half = _skew(tall) / 2
    one = np.eye(len(half))
    made: Array = np.linalg.solve(one - half, one + half)
    return made[:, : tall.shape[1]]


def _householder(tall: Array) -> Array:
    """Return the product of all reflections at once: I - V T Vᵀ (C. Bischof and C. Van Loan, 1987).

    The inverse of T is upper triangular: above its diagonal that of VᵀV, on it half the squared lengths.
    """
    columns = tall.shape[1]
    vectors = np.tril(tall, -1)
    lengths = 1 + (vectors * vectors).sum(0)
    vectors += np.eye(*tall.shape)
    inverse = np.triu(vectors.T @ vectors, 1) + np.diag(lengths / 2)
    made: Array = np.eye(*tall.shape) - vectors @ np.linalg.solve(inverse, vectors[:columns].T)
    made *= np.trunc(np.diagonal(tall))
    return made


_MAPS: dict[str, Callable[[Array], Array]] = {
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


def rounded(numbers: Array, dtype: str) -> Array:
    """Return the nearest numbers of ``dtype``, as arrays hold them, in C order.

    NumPy rounds float64 to float16 once. To bfloat16 it goes by way of float32, and so would be rounded twice, which is
    another number only where the first rounding ends half way between two of them. There the float32 gets an odd last
    bit, which leaves the second rounding as it would be without the first (S. Boldo and G. Melquiond, "Emulation of FMA
    and correctly rounded sums: proved algorithms using rounding to odd", 2008).
    """
    numbers = np.ascontiguousarray(numbers).reshape(-1)
    if dtype == "float16":
        made: Array = numbers.astype(np.float16).view(np.uint16)
        return made
    if dtype != "bfloat16":
        return cast_array(numbers, "float64", dtype)
    near = numbers.astype(np.float32)
    between = np.flatnonzero((near.view(np.uint32) & 0x7FFF) == 0)
    first = near[between]
    rest = numbers[between] - first
    toward = np.where(rest > 0, np.float32(np.inf), np.float32(-np.inf))
    near[between] = np.where((rest != 0) & ~np.isnan(rest), np.nextafter(first, toward), first)
    return cast_array(near, "float32", dtype)
