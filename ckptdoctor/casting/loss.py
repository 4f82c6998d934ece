"""What casting loses: measured by casting, and casting back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ckptdoctor.casting.cast import in_pieces, numbers, one_thread
from ckptdoctor.checkpoint import progress
from ckptdoctor.noun import noun

if TYPE_CHECKING:
    import torch


@noun
class Loss:
    """Of so many ``values``, those that are others afterwards: finite ones that become ``infinite`` or 0 among them.

    ``relative`` is the largest error of the others as a share of the value, and ``largest`` the largest of the values
    that become infinite.
    """

    values: int = 0
    changed: int = 0
    infinite: int = 0
    zero: int = 0
    relative: float = 0.0
    largest: float = 0.0

    def __add__(self, other: Loss) -> Loss:
        return Loss(
            values=self.values + other.values,
            changed=self.changed + other.changed,
            infinite=self.infinite + other.infinite,
            zero=self.zero + other.zero,
            relative=max(self.relative, other.relative),
            largest=max(self.largest, other.largest),
        )


def loss_of(chunks: Iterable[bytes], count: int, source: str, target: str) -> Loss:
    """The loss of casting these bytes, ``count`` numbers of the dtype ``source``. NaN and infinity lose nothing."""
    import torch

    found = Loss()
    with one_thread(count):
        for piece in in_pieces(chunks, getattr(torch, source).itemsize):
            found += _of_piece(piece, source, target)
            progress.advance(len(piece))
    return found


def _of_piece(data: bytes, source: str, target: str) -> Loss:
    import torch

    given = numbers(data, source)
    back = given.to(getattr(torch, target)).to(given.dtype)
    apart = back - given
    changed = int(apart.count_nonzero().item())
    if not changed:
        return Loss(values=given.numel())
    low, high = (each.item() for each in torch.aminmax(apart.div_(given)))
    if low > -1 and high < 1:  # no NaN, and nothing that becomes 0 or infinite
        return Loss(given.numel(), changed, relative=max(high, -low))
    return _with_odd_ones(given, back)


def _with_odd_ones(given: torch.Tensor, back: torch.Tensor) -> Loss:
    """The same where there are zeros, NaN, infinity, or values that become 0 or infinite."""
    finite = given.isfinite()
    changed = int(((back != given) & finite).sum().item())
    gone, over = (back == 0) & (given != 0), back.isinf() & finite
    infinite = int(over.sum().item())
    others = finite & ~over & ~gone & (given != 0)
    errors = (back[others] - given[others]).div_(given[others]).abs_()
    return Loss(
        values=given.numel(),
        changed=changed,
        infinite=infinite,
        zero=int(gone.sum().item()),
        relative=errors.max().item() if errors.numel() else 0.0,
        largest=given[over].abs().max().item() if infinite else 0.0,
    )
