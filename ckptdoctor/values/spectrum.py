"""Takes the singular values of a tensor that is a matrix, or a convolution, whose kernels are then its columns."""

from __future__ import annotations

from math import prod

import numpy as np

from ckptdoctor.casting.arrays import Array
from ckptdoctor.checkpoint import Tensor
from ckptdoctor.values.regions import Boxes, UnreadError, plain
from ckptdoctor.values.statistics import Spectrum

_MOST = 3e11  # multiplications: what takes about a minute on a few cores


def spectrum(tensor: Tensor, boxes: Boxes) -> Spectrum:
    """Return the singular values, by size. Raises UnreadError where there are none."""
    if tensor.layout != "strided":
        raise UnreadError(f"values of {tensor.layout} tensors are not where a matrix has them")
    tensor = plain(tensor)
    if len(tensor.shape) < 2 or not tensor.numel:
        raise UnreadError("only a matrix has singular values")
    rows, columns = tensor.shape[0], prod(tensor.shape[1:])
    if rows * columns * min(rows, columns) > _MOST:
        raise UnreadError(f"a matrix of {rows:,} × {columns:,} has too many singular values to be computed here")
    values = boxes.read(tensor, [(range(size),) for size in tensor.shape]).reshape(rows, columns)
    matrix = values.astype(np.complex128 if np.iscomplexobj(values) else np.float64)
    if not np.isfinite(matrix).all():
        raise UnreadError("a matrix with NaN or infinity in it has no singular values")
    found: Array = np.linalg.svd(matrix, compute_uv=False)
    rounding = 2.0 ** -(tensor.dtype.mantissa or 52)  # of what is stored; of integers only that of computing
    rank = int(np.count_nonzero(found > found[0] * max(rows, columns) * rounding))
    shares = found[found > 0] / max(float(found.sum()), np.finfo(np.float64).tiny)
    effective = float(np.exp(-(shares * np.log(shares)).sum())) if shares.size else 0.0
    return Spectrum(tuple(found.tolist()), rows, columns, rank, effective)
