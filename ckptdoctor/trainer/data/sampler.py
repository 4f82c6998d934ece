"""Which images are in which batch: one order per epoch, the same on every rank and for every number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.data.seeding import generator


@dataclass(frozen=True)
class Sampler:
    """The order of ``size`` images in each epoch, cut into global batches of ``batch_size``.

    ``torch.utils.data.DistributedSampler`` is what tutorials use. It shuffles all images with the seed ``seed + epoch``
    (without ``set_epoch`` every epoch has the order of the first: the classic mistake), pads or, with ``drop_last``,
    cuts the order to a multiple of the number of ranks, and gives rank r of N the images r, r + N, r + 2N, …

    This one shuffles in the same way and cuts the order into *global* batches first; then rank r gets the r-th
    contiguous chunk of each, as ``nn.parallel.scatter`` deals it. In step k all ranks together see the same images
    under both rules, as long as the number of ranks divides the batch. But here a step is a slice of the order that
    does not depend on N: a run can stop after any step and go on with another number of ranks, and neither repeats nor
    misses an image. And there is no ``set_epoch`` to forget: the epoch is an argument.

    Every batch is whole: images that do not fill a last one wait for another epoch's order. So the mean over ranks of
    their mean gradients, which is what an all-reduce gives, is the mean over the batch.
    """

    size: int
    batch_size: int
    seed: int

    def permutation(self, epoch: int) -> torch.Tensor:
        """The order of all images in an epoch, as indices."""
        return torch.randperm(self.size, generator=generator("permutation", self.seed, epoch))

    @property
    def steps(self) -> int:
        """How many whole batches an epoch has. Raises UsageError when there is none."""
        if self.batch_size < 1:
            raise UsageError(f"a batch of {self.batch_size} images is none: --batch-size must be at least 1")
        if self.size < self.batch_size:
            raise UsageError(
                f"a batch of {self.batch_size} images cannot be made of {self.size}: "
                f"choose --batch-size {self.size} or less"
            )
        return self.size // self.batch_size

    def batches(self, epoch: int, start: int = 0) -> Iterator[torch.Tensor]:
        """The indices of each global batch of an epoch, from step ``start`` on."""
        order = self.permutation(epoch)[: self.steps * self.batch_size]
        return iter(order.split(self.batch_size)[start:])


def share(size: int, rank: int, world_size: int) -> slice:
    """The contiguous part of ``size`` images that falls to a rank; parts differ by at most one, and may be empty."""
    return slice(size * rank // world_size, size * (rank + 1) // world_size)
