"""Lists the closed forms by which tensors are computed of others, and what each of them takes.

``MASKED``: (original, mask) of ``torch.nn.utils.prune``, of which ``remove`` makes ``mask.to(original.dtype) *
original``. ``LOW_RANK``: (weight, A, B) of LoRA, ``weight + scale * B·A`` with the one number ``scale``; where a
convolution has A and B with more dimensions, they are matrices with an index along the first dimension in each row.
``TURNED``: the same for weights that are kept transposed (Conv1D of transformers) and for embeddings: ``weight + scale
* (B·A)ᵀ``.
``SCALED``: (weight, factors) of IA3, each index along the dimension ``dim`` times its factor.
``MATRIX_EXP``, ``CAYLEY``, ``HOUSEHOLDER``: (original, base), or the original alone, of
``torch.nn.utils.parametrizations.orthogonal`` with the map of that name: what its ``forward`` gives.

What the forms give is worked out in float64 and rounded once to the dtype of the first tensor; MASKED is torch's own
product in that dtype, bit for bit. ``ckptdoctor.computing`` has the code for each of them, by the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, prod

from ckptdoctor.checkpoint import DType, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.edits.elements import Calculated, Elements, Shape, permuted, reshaped
from ckptdoctor.edits.kinds import Compute
from ckptdoctor.errors import RefusedError

MASKED, LOW_RANK, TURNED, SCALED = "masked", "low rank", "low rank, transposed", "scaled"
MATRIX_EXP, CAYLEY, HOUSEHOLDER = ORTHOGONAL = ("matrix_exp", "cayley", "householder")
FLOATS = ("float64", "float32", "float16", "bfloat16")
MASKS = (*FLOATS, "bool", "uint8", "int8", "int16", "int32", "int64")

_HELD = 1 << 24  # numbers of a factor that are held in memory, at most
_ROW = 1 << 24  # numbers of one row, at most
_SQUARE = 1 << 22  # numbers of a matrix of which several are held in memory


def calculated(edit: Compute, given: Sequence[tuple[DType, Elements]]) -> Calculated:
    """Return what the edit makes of these tensors and those of other files.

    Raises RefusedError where they do not fit.
    """
    kinds = (*[dtype.name for dtype, _ in given], *[kind for kind, _ in edit.beside])
    parts = (*[part for _, part in given], *[part for _, part in edit.beside])
    arranged = _FORMS.get(edit.form)
    if arranged is None or not parts or edit.dtype != kinds[0] or kinds[0] not in FLOATS:
        raise _refused(edit, f"is {kinds[0] if kinds else 'missing'}, so it cannot be used in computations")
    return Calculated(
        edit.form,
        arranged(edit, kinds, parts),
        kinds,
        edit.numbers,
        edit.dtype,
        BY_NAME[edit.dtype].bits // 8,
        parts[0].shape,
    )


def _masked(edit: Compute, kinds: tuple[str, ...], parts: tuple[Elements, ...]) -> tuple[Elements, ...]:
    if len(parts) != 2 or kinds[1] not in MASKS:
        raise _refused(edit, "has no usable mask")
    if parts[0].shape != parts[1].shape:
        raise _refused(edit, f"is {list(parts[0].shape)}, and its mask is {list(parts[1].shape)}")
    return parts


def _low_rank(edit: Compute, kinds: tuple[str, ...], parts: tuple[Elements, ...]) -> tuple[Elements, ...]:
    """Return (weight, left, right): matrices that are multiplied as they are."""
    if len(parts) != 3 or not all(kind in FLOATS for kind in kinds) or len(edit.numbers) != 1:
        raise _refused(edit, "does not have two usable factors")
    weight, first, second = parts
    left, right = _matrix(second), _matrix(first)
    if left is None or right is None or not isfinite(edit.numbers[0]):
        raise _refused(edit, "has factors that are not matrices")
    if edit.form == TURNED:
        left, right = permuted(right, (1, 0)), permuted(left, (1, 0))
    rows, columns = _sides(weight.shape)
    fits = left.shape[0] == rows and right.shape[1] == columns and left.shape[1] == right.shape[0] > 0
    if not fits or (edit.form == TURNED and len(weight.shape) != 2):
        sizes = ", ".join(str(list(each.shape)) for each in parts[1:])
        raise _refused(edit, f"is {list(weight.shape)}, which does not match factors of {sizes}")
    if max(prod(right.shape), columns) > _HELD:
        raise _refused(edit, f"has a factor of {prod(right.shape):,} numbers, which is too large for memory")
    return weight, left, right


def _scaled(edit: Compute, kinds: tuple[str, ...], parts: tuple[Elements, ...]) -> tuple[Elements, ...]:
    if len(parts) != 2 or kinds[1] not in FLOATS or len(edit.numbers) != 1:
        raise _refused(edit, "has no usable factors")
    dim = int(edit.numbers[0])
    shape = parts[0].shape
    if not 0 <= dim < min(2, len(shape)) or prod(parts[1].shape) != shape[dim]:
        raise _refused(edit, f"is {list(shape)}, and its factors are {list(parts[1].shape)}")
    if max(shape[dim], prod(shape[1:])) > _ROW:
        raise _refused(edit, f"has rows of {prod(shape[1:]):,} numbers, which are too large for memory")
    return parts


def _orthogonal(edit: Compute, kinds: tuple[str, ...], parts: tuple[Elements, ...]) -> tuple[Elements, ...]:
    shape = parts[0].shape
    if len(parts) > 2 or len(set(kinds)) != 1 or len(shape) < 2 or edit.numbers:
        raise _refused(edit, "is not the base of an orthogonal matrix")
    size = max(shape[-2:])
    if len(parts) == 2 and parts[1].shape != (*shape[:-2], size, size):
        raise _refused(edit, f"is {list(shape)}, and its base is {list(parts[1].shape)}")
    if size * size > _SQUARE:
        raise _refused(edit, f"makes a matrix of {size:,} rows and columns, which is too large for memory")
    return parts


_FORMS: dict[str, Callable[[Compute, tuple[str, ...], tuple[Elements, ...]], tuple[Elements, ...]]] = {
    MASKED: _masked,
    LOW_RANK: _low_rank,
    TURNED: _low_rank,
    SCALED: _scaled,
    **dict.fromkeys(ORTHOGONAL, _orthogonal),
}


def _matrix(elements: Elements) -> Elements | None:
    """Return a factor with an index along its first dimension in each row."""
    return reshaped(elements, _sides(elements.shape)) if len(elements.shape) > 1 else None


def _sides(shape: Shape) -> tuple[int, int]:
    return (shape[0], prod(shape[1:])) if shape else (1, 1)


def _refused(edit: Compute, why: str) -> RefusedError:
    return RefusedError(f"{show_path(edit.paths[0] if edit.paths else (*edit.place, edit.key))} {why}.")
