"""The bits of floats compared as integers without a sign, and squares added up: by NumPy where it is installed.

torch compares only integers with a sign and would have to flip that first, which takes twice as long; its dot product
takes as long again as NumPy's. Every torch that finds NumPy has imported it already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# values whose squares float32 adds up without losing digits; longer rows would go to threads of NumPy's own
_ROW = 1 << 13
_PIECE = 1 << 16  # the same for torch, which adds up in more lanes


def unsigned_extremes(bits: torch.Tensor, scratch: Callable[[], torch.Tensor]) -> tuple[int, int]:
    """The least and the greatest of signed integers taken for unsigned ones.

    ``scratch`` gives memory like that of ``bits``, which is only asked for where there is no NumPy.
    """
    import torch

    numpy = _numpy()
    if numpy is not None:
        array = bits.numpy().view(f"u{bits.element_size()}")
        return int(numpy.minimum.reduce(array)), int(numpy.maximum.reduce(array))
    lowest = torch.iinfo(bits.dtype).min
    flipped = torch.bitwise_xor(bits, torch.tensor(lowest, dtype=bits.dtype), out=scratch())
    least, greatest = (int(each.item()) - lowest for each in torch.aminmax(flipped))
    return least, greatest


def sum_of_squares(values: torch.Tensor) -> float:
    """Of contiguous float32 or float64. Four digits are right with float32, twelve with float64."""
    numpy = _numpy()
    done, total = 0, 0.0
    if values.numel() >= _ROW and hasattr(numpy, "vecdot"):  # since NumPy 2.0
        done = values.numel() // _ROW * _ROW
        rows = values.numpy()[:done].reshape(-1, _ROW)
        with numpy.errstate(over="ignore"):  # infinity is an answer
            total = float(numpy.vecdot(rows, rows).sum(dtype=numpy.float64))
    if done < values.numel():
        total += sum([piece.dot(piece).item() for piece in values[done:].split(_PIECE)])
    return total


@cache
def _numpy() -> Any:
    """None where it is not installed, or where torch was built for another one and cannot share memory with it."""
    import torch

    try:
        import numpy

        torch.zeros(1).numpy()
    except (ImportError, RuntimeError):
        return None
    return numpy
