"""Holds tensors that were computed of others against a computation of its own, piece by piece.

Nothing that computed them is used. A masked number must have the bits of the original, or be the zero that a product
with zero gives; sums are added in another order, and each number must be the one that they give, or the next to it.
Orthogonal matrices are found in another way: by eigenvalues, from the other side, and one reflection after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import numpy as np

from ckptdoctor.casting.arrays import Array, array_of, widened
from ckptdoctor.casting.cast import cast_array
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.computing.streams import Read, Stream, doubles, whole
from ckptdoctor.edits.computing import CAYLEY, HOUSEHOLDER, LOW_RANK, MASKED, MATRIX_EXP, SCALED, TURNED
from ckptdoctor.edits.elements import Calculated
from ckptdoctor.errors import WriteError

_PIECE = 3 << 15  # numbers that are compared at once: not as many as were computed at once
_SUMS = 2.0**-44  # what sums of float64 may differ by, whatever the order

Written = Callable[[int, int], bytes]  # (first byte, length)


def require_calculated(given: Calculated, read: Read, written: Written) -> None:
    """Raise WriteError unless ``written`` gives the bytes of the tensor; ``read`` gives those of its parts."""
    at = 0
    with np.errstate(all="ignore"):  # what is not finite is compared, too
        for right, count in _FORMS[given.form](given, read, written) if prod(given.shape) else ():
            if not right:
                raise WriteError(
                    f"A number of the output does not match its computation ({given.form}); it was discarded."
                )
            at += count
    if at != prod(given.shape):
        raise WriteError(
            "A tensor of the output does not have the number of elements that it is computed from; it was discarded."
        )


def _there(given: Calculated, written: Written, at: int, count: int) -> Array:
    return array_of(written(at * given.width, count * given.width), given.dtype)


def _masked(given: Calculated, read: Read, written: Written) -> Iterator[tuple[bool, int]]:
    original, mask = (Stream(part, kind, read) for part, kind in zip(given.parts, given.kinds, strict=True))
    total, kind = prod(given.shape), given.dtype
    for at in range(0, total, _PIECE):
        count = min(_PIECE, total - at)
        stored, written_there = original.take(count), _there(given, written, at, count)
        same = _bits(stored) == _bits(written_there)
        old, new = widened(stored, kind), widened(written_there, kind)
        kept = widened(cast_array(mask.take(count), mask.dtype, kind), kind)
        zero = (new == 0) & (np.signbit(new) == (np.signbit(old) ^ np.signbit(kept))) & np.isfinite(old)
        other = (kept != 0) & (kept != 1)
        product = np.where(other, old.astype(np.float64) * kept, 0.0)
        again = widened(cast_array(product, "float64", kind), kind)
        found = np.where(kept == 0, zero, np.where(kept == 1, same, again == new))
        odd = np.isnan(product) | np.isnan(old) | np.isnan(kept) | ((kept == 0) & ~np.isfinite(old))
        yield bool(np.where(odd, np.isnan(new), found).all()), count


def _bits(numbers: Array) -> Array:
    return numbers.view(f"u{numbers.itemsize}")


def _low_rank(given: Calculated, read: Read, written: Written) -> Iterator[tuple[bool, int]]:
    """Yield the transposed product of the transposed factors, their indices reversed."""
    _, a, b = given.kinds
    left_kind, right_kind = (b, a) if given.form == LOW_RANK else (a, b)
    rows, rank = given.parts[1].shape
    columns = given.parts[2].shape[1]
    right = np.ascontiguousarray(whole(given.parts[2], right_kind, read).reshape(rank, columns)[::-1].T)
    weight, left = Stream(given.parts[0], given.kinds[0], read), Stream(given.parts[1], left_kind, read)
    most = np.abs(right).max(0, keepdims=True)
    step = max(1, _PIECE // columns)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        factor = np.ascontiguousarray(left.doubles(count, rank)[:, ::-1].T)
        old = weight.doubles(count, columns)
        sums = old + given.numbers[0] * (right @ factor).T
        sizes = np.abs(old) + abs(given.numbers[0]) * (most @ np.abs(factor)).T
        there = _there(given, written, first * columns, count * columns).reshape(count, columns)
        yield _near(sums, there, sizes * _SUMS, given.dtype), count * columns


def _scaled(given: Calculated, read: Read, written: Written) -> Iterator[tuple[bool, int]]:
    dim, shape = int(given.numbers[0]), given.shape
    factors = whole(given.parts[1], given.kinds[1], read)
    weight, total, inner = Stream(given.parts[0], given.kinds[0], read), prod(shape), prod(shape[dim + 1 :])
    for at in range(0, total, _PIECE):
        count = min(_PIECE, total - at)
        owner = np.arange(at, at + count) // inner % shape[dim]
        found = factors[owner] * weight.doubles(count)
        yield _near(found, _there(given, written, at, count), np.abs(found) * _SUMS, given.dtype), count


def _orthogonal(given: Calculated, read: Read, written: Written) -> Iterator[tuple[bool, int]]:
    rows, columns = given.shape[-2:]
    size, count = max(rows, columns), rows * columns
    original, *bases = (Stream(part, kind, read) for part, kind in zip(given.parts, given.kinds, strict=True))
    for at in range(0, prod(given.shape), count):
        numbers = original.doubles(rows, columns)
        tall = numbers if rows >= columns else numbers.T
        found, sums = _MAPS[given.form](tall), _SUMS * size * (1 + np.abs(tall).sum(0).max())
        for base in bases:
            matrix = base.doubles(size, size)
            found, sums = (found.T @ matrix.T).T, sums * np.abs(matrix).sum(1).max()
        found = (found if rows >= columns else found.T).reshape(-1)
        yield _near(found, _there(given, written, at, count), np.full(count, sums), given.dtype), count


def _skew(tall: Array) -> Array:
    rows, columns = tall.shape
    wide: Array = np.tril(np.pad(tall, ((0, 0), (0, rows - columns))), -1)
    wide -= wide.T.copy()
    return wide


def _by_eigenvalues(tall: Array) -> Array:
    """Return the exponential of a skew-symmetric matrix, of which i times it is Hermitian."""
    values, vectors = np.linalg.eigh(1j * _skew(tall))
    made: Array = ((vectors * np.exp(-1j * values)) @ vectors.conj().T).real
    return made[:, : tall.shape[1]]


def _from_the_right(tall: Array) -> Array:
    """Return the two factors of Cayley's map, which may change places."""
    half = _skew(tall) / 2
    one = np.eye(len(half))
    made: Array = np.linalg.solve((one - half).T, (one + half).T).T
    return made[:, : tall.shape[1]]


def _by_reflections(tall: Array) -> Array:
    """Return one reflection after another, the last first."""
    made = np.eye(*tall.shape)
    for column in range(tall.shape[1] - 1, -1, -1):
        vector = tall[column:, column].copy()
        vector[0] = 1
        some = made[column:, column:]  # the rest has nothing where the vector has something
        some -= np.outer(vector * (2 / vector.dot(vector)), vector @ some)
    found: Array = made * np.diagonal(tall).astype(np.int32)
    return found


_MAPS: dict[str, Callable[[Array], Array]] = {
    MATRIX_EXP: _by_eigenvalues,
    CAYLEY: _from_the_right,
    HOUSEHOLDER: _by_reflections,
}


def _near(found: Array, there: Array, sums: Array, dtype: str) -> bool:
    """Return whether these are the numbers, each rounded to the dtype or to the number next to it."""
    kind, wide = BY_NAME[dtype], doubles(there, dtype)
    least = 2.0 ** (2 - 2 ** (kind.exponent - 1) - kind.mantissa)  # the smallest number above 0
    if bool((np.abs(wide - found) <= np.abs(found) * 2.0**-kind.mantissa + sums).all()):
        return True  # the usual case: neither NaN nor infinity, nor anything near 0
    limit = 2.0 ** (2 ** (kind.exponent - 1) - 1) * (2 - 2.0**-kind.mantissa)  # the largest one
    near = np.abs(wide - found) <= np.maximum(np.abs(found) * 2.0**-kind.mantissa, least) + sums
    over = np.isinf(wide) & (np.abs(found) >= limit) & (np.signbit(wide) == np.signbit(found))
    same = (np.isnan(found) & np.isnan(wide)) | (wide == found)
    return bool(np.where(np.isfinite(found) & np.isfinite(wide), near, over | same).all())


_FORMS: dict[str, Callable[[Calculated, Read, Written], Iterator[tuple[bool, int]]]] = {
    MASKED: _masked,
    LOW_RANK: _low_rank,
    TURNED: _low_rank,
    SCALED: _scaled,
    **dict.fromkeys(_MAPS, _orthogonal),
}
