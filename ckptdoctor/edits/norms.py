"""Describes what weight norm and spectral norm keep of a weight, and along which dimension, by their shapes alone.

torch computes the weight of them anew whenever it is asked for. Sources: ``torch.nn.utils.weight_norm``,
``torch.nn.utils.spectral_norm`` and ``torch.nn.utils.parametrizations``, and ``norm_except_dim`` of ATen.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ckptdoctor.checkpoint import DType, show_path
from ckptdoctor.edits.elements import Elements, Normed, Shape
from ckptdoctor.edits.kinds import FuseNorm
from ckptdoctor.errors import RefusedError

DTYPES = ("float64", "float32", "float16", "bfloat16")  # whose values are computed
WEIGHT, SPECTRAL = "weight", "spectral"

# torch keeps u in the direction of W·v; of a matrix with rows along another dimension it has any direction
ALIGNED = 0.9

_HELD = 1 << 22  # numbers of a norm that are held in memory, at most: one for each channel


def weight_dims(v: Shape, g: Shape) -> tuple[int | None, ...]:
    """Return the dimensions that weight norm can have been made with: of v and g with these shapes.

    None: all of v at once.

    g has the size of v along that one and 1 along all others; several mean the same where v has the size 1 along them.
    """
    if not g:
        return (None,)
    wide = [dim for dim, size in enumerate(g) if size != 1]
    if len(g) != len(v) or len(wide) > 1:
        return ()
    found = wide or [dim for dim, size in enumerate(v) if size == 1][:1]
    return tuple([dim for dim in found if g[dim] == v[dim]])


def spectral_dims(original: Shape, u: Shape, v: Shape) -> tuple[int, ...]:
    """Return the dimensions that spectral norm can have been made with.

    There, u has the size of the dimension, and v that of all others together.
    """
    if len(original) < 2 or len(u) != 1 or len(v) != 1:
        return ()
    return tuple([dim for dim, size in enumerate(original) if u[0] == size and v[0] * size == prod(original)])


def undecided(shape: Shape) -> RefusedError:
    """Return the refusal where the shapes allow several dimensions and the values do not tell either."""
    return RefusedError(
        f"A weight of {list(shape)} has a spectral norm along its first or its second dimension, as for "
        "transposed convolutions: its shape fits both, and its u and v do not show which. Remove the norm in "
        "Python (torch.nn.utils.remove_spectral_norm) and save the model again."
    )


def normed(edit: FuseNorm, given: Sequence[tuple[DType, Elements]]) -> Normed:
    """Return what the edit makes of these tensors. Raises RefusedError for those that no such norm keeps."""
    what, shapes = show_path(edit.paths[0]), [part.shape for _, part in given]
    if edit.norm not in (WEIGHT, SPECTRAL) or len(given) != (2 if edit.norm == WEIGHT else 3):
        raise RefusedError(f"{what} is not part of a weight norm or a spectral norm.")
    dtypes = {dtype.name for dtype, _ in given}
    if len(dtypes) != 1 or not dtypes.issubset(DTYPES):
        raise RefusedError(f"{what} and its parts are {', '.join(sorted(dtypes))}: that cannot be computed.")
    dims = weight_dims(*shapes) if edit.norm == WEIGHT else spectral_dims(*shapes)
    told = edit.norm == SPECTRAL and edit.dim is None and dims  # the values tell
    if edit.dim not in dims and not told:
        sizes = ", ".join([str(list(shape)) for shape in shapes])
        raise RefusedError(f"The shapes {sizes} of {what} and its norm are not those of a norm along {edit.dim}.")
    if max(map(prod, shapes[1:])) > _HELD:
        raise RefusedError(f"The norm of {what} has more than {_HELD:,} numbers, so it is not computed.")
    return Normed(edit.norm, tuple([part for _, part in given]), edit.dim, dtypes.pop(), shapes[0])
