"""Batches for one rank: the order of an epoch, and of every global batch this rank's share, prepared, on the CPU."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader

from ckptdoctor.errors import TrainingError, UsageError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.data.dataset import Dataset, DataSplit, generator, prepared


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
        """Return the order of all images in an epoch, as indices."""
        return torch.randperm(self.size, generator=generator("permutation", self.seed, epoch))

    @property
    def steps(self) -> int:
        """The number of whole batches in an epoch. Raises UsageError when there is none."""
        if self.batch_size < 1:
            raise UsageError(f"a batch cannot have {self.batch_size} images: --batch-size must be at least 1")
        if self.size < self.batch_size:
            raise UsageError(
                f"a batch of {self.batch_size} images cannot be made from {self.size}: choose --batch-size "
                f"{self.size} or less"
            )
        return self.size // self.batch_size

    def batches(self, epoch: int, start: int = 0) -> Iterator[torch.Tensor]:
        """Return the indices of each global batch of an epoch, from step ``start`` on."""
        order = self.permutation(epoch)[: self.steps * self.batch_size]
        return iter(order.split(self.batch_size)[start:])


def rank_share(size: int, rank: int, world_size: int) -> slice:
    """Return the contiguous part of ``size`` images that falls to a rank.

    Parts differ by at most one, and may be empty.
    """
    return slice(size * rank // world_size, size * (rank + 1) // world_size)


Batch = tuple[torch.Tensor, torch.Tensor]

PREPARED_AT_ONCE = 256 * 2**20
"""Bytes. A split of at most this size when prepared is prepared once; a larger one batch by batch."""


class Batches:
    """A split as this rank trains on it. ``workers`` processes prepare it ahead, or none; the bits are the same.

    Preparing small images costs less than passing them between processes, so workers help only where images are many
    and large, and a GPU would wait for them.
    """

    def __init__(
        self,
        split: DataSplit,
        dataset: Dataset,
        sampler: Sampler,
        config: RunConfig,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if sampler.batch_size % world_size:
            raise UsageError(
                f"a batch of {sampler.batch_size} images cannot be split evenly over {world_size} ranks: "
                f"choose a --batch-size that is a multiple of {world_size}"
            )
        # page-locked memory is a matter of CUDA: torch warns where there is none
        self._pinned = config.pin_memory and torch.cuda.is_available()
        self._images = Images(split, dataset, getattr(torch, config.dtype))
        self._order = RankOrder(sampler, rank_share(sampler.batch_size, rank, world_size))
        self._loader: DataLoader[Batch] | None = None
        if config.workers:
            self._loader = loader(self._images, self._order, config.workers, self._pinned)
        else:
            self._images.prepare_if_small()

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Return (inputs, labels) of this rank for each step of an epoch, from step ``start`` on."""
        if self._loader is None:
            return self._in_this_process(epoch, start)
        self._order.epoch, self._order.start = epoch, start
        return from_workers(self._loader)

    def _in_this_process(self, epoch: int, start: int) -> Iterator[Batch]:
        for chosen in self._order.chunks(epoch, start):
            inputs, labels = self._images.choose(chosen)
            yield (inputs.pin_memory(), labels.pin_memory()) if self._pinned else (inputs, labels)


class Images:
    """A split from which whole batches are taken."""

    def __init__(self, split: DataSplit, dataset: Dataset, dtype: torch.dtype) -> None:
        self.split = split
        self.dataset = dataset
        self.dtype = dtype
        self.ready: torch.Tensor | None = None

    def prepare_if_small(self) -> None:
        """Prepare all images now, if there is room for them."""
        if self.split.inputs.numel() * self.dtype.itemsize <= PREPARED_AT_ONCE:
            self.ready = prepared(self.split.inputs, self.dataset, self.dtype)

    def choose(self, indices: torch.Tensor) -> Batch:
        """Return these images, prepared, and their labels."""
        labels = self.split.labels.index_select(0, indices)
        if self.ready is not None:
            return self.ready.index_select(0, indices), labels
        return prepared(self.split.inputs.index_select(0, indices), self.dataset, self.dtype), labels

    def __getitems__(self, indices: list[int]) -> Batch:
        # DataLoader asks for a whole batch in one call where a data set has this method, instead of image by image
        return self.choose(torch.tensor(indices))


class RankOrder:
    """The images of this rank in each step; also a DataLoader's batch sampler, which it asks for lists of indices.

    A DataLoader iterates over it in this process, not in its workers, so the next epoch is simply set. It must not know
    the Batches that hold it: in a cycle, garbage collection takes the workers' queues away before they are told to end,
    and each is waited for in vain for five seconds.
    """

    def __init__(self, sampler: Sampler, part: slice) -> None:
        self.sampler = sampler
        self.part = part
        self.epoch = 0
        self.start = 0

    def chunks(self, epoch: int, start: int) -> Iterator[torch.Tensor]:
        """Return the indices of this rank's images in each step of an epoch."""
        return (batch[self.part] for batch in self.sampler.batches(epoch, start))

    def __iter__(self) -> Iterator[list[int]]:
        return (chosen.tolist() for chosen in self.chunks(self.epoch, self.start))


def loader(images: Images, order: RankOrder, workers: int, pinned: bool) -> DataLoader[Batch]:
    """Return a DataLoader whose workers live from epoch to epoch and prepare whole batches."""
    return DataLoader(
        images,  # type: ignore[arg-type]  # it has what DataLoader calls, and needs no base class for it
        batch_sampler=order,
        num_workers=workers,
        collate_fn=as_it_is,  # type: ignore[arg-type]  # typed for lists of images, and given what __getitems__ gave
        pin_memory=pinned,
        persistent_workers=True,
        # a DataLoader draws a seed for its workers: from here, so that dropout's numbers are the same without workers
        generator=torch.Generator(),
    )


def as_it_is(batch: Batch) -> Batch:
    """Pass on the batch that ``__getitems__`` gave. A named function, because workers may have to unpickle it."""
    return batch


def from_workers(source: DataLoader[Batch]) -> Iterator[Batch]:
    """Yield the batches that workers prepare, in order. Raises TrainingError when one of them dies.

    A death is noticed where a batch is waited for: from a broken connection, or within the five seconds after which
    DataLoader looks whether its workers live.
    """
    with sigchld_as_it_was():
        batches = iter(source)
    try:
        yield from batches
    except (RuntimeError, ConnectionError, EOFError) as error:
        if not is_death(error):  # what a worker itself raised is for who wrote it
            raise
        raise TrainingError(
            f"a data loading process has died ({str(error).strip().rstrip('.') or 'it hung up'}): train with "
            "fewer --workers, or with none"
        ) from error


def is_death(error: Exception) -> bool:
    """Return whether a DataLoader's error says that a worker is gone, rather than what a worker raised."""
    if isinstance(error, RuntimeError):
        return str(error).startswith("DataLoader worker (pid")
    return not str(error).startswith("Caught ")  # so begins what torch._utils.ExceptionWrapper brings from a worker


@contextmanager
def sigchld_as_it_was() -> Iterator[None]:
    """Keep the program's handler of SIGCHLD while a DataLoader starts its workers.

    torch's (``torch.utils.data._utils.signal_handling``) raises when a worker dies, wherever the main thread is by
    then: in the middle of a checkpoint, or of telling of that very death.
    """
    if not hasattr(signal, "SIGCHLD") or threading.current_thread() is not threading.main_thread():
        yield  # torch sets none here
        return
    before = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if before is None else before)


def test_batches(
    split: DataSplit, dataset: Dataset, *, rank: int = 0, world_size: int = 1, batch_size: int, dtype: torch.dtype
) -> Iterator[Batch]:
    """Yield this rank's part of every batch of a whole split, in order: each image exactly once over all ranks.

    Every rank gets the same number of batches, because a forward pass may be collective (FSDP gathers weights in it)
    and a rank without one would leave the others waiting. In the last batch a rank's part may be smaller, or empty.
    """
    for first in range(0, len(split), batch_size):
        inputs, labels = split.inputs[first : first + batch_size], split.labels[first : first + batch_size]
        mine = rank_share(len(labels), rank, world_size)
        yield prepared(inputs[mine], dataset, dtype), labels[mine]
