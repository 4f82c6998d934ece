"""The nouns of the data: two splits of images with their labels, how images become numbers for a network, and seeds."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import torch


@dataclass(frozen=True)
class DataSplit:
    """Images and their labels, in the order of their source.

    ``inputs`` are bytes (N, channels, height, width), four times smaller than the floats they become, or, for points,
    float32 (N, 3). ``labels`` are int64 (N,), as ``torch.nn.functional.cross_entropy`` wants them.
    """

    inputs: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        """Return the number of images."""
        return self.labels.shape[0]

    def first(self, count: int) -> DataSplit:
        """Return the first ``count`` images; all, where there are no more. A copy, so that the rest can be let go."""
        return self if count >= len(self) else DataSplit(self.inputs[:count].clone(), self.labels[:count].clone())


@dataclass(frozen=True)
class Dataset:
    """The images that a network learns from, and those it is tested with."""

    name: str
    train: DataSplit
    test: DataSplit
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    """Of each channel, for values in [0, 1]."""
    std: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: (channels, height, width), or (3,) for points."""
        return tuple(self.train.inputs.shape[1:])


def prepared(inputs: torch.Tensor, dataset: Dataset, dtype: torch.dtype) -> torch.Tensor:
    """Return numbers for a network: bytes to [0, 1], less the mean, over the standard deviation.

    Points only change dtype.

    Each operation rounds every value on its own, so an image has the same bits whether it is prepared alone, in a batch
    or with its whole split.
    """
    if inputs.dtype != torch.uint8:
        return inputs.to(dtype)
    channels = (-1, 1, 1)
    mean = torch.tensor(dataset.mean, dtype=dtype).view(channels)
    std = torch.tensor(dataset.std, dtype=dtype).view(channels)
    return inputs.to(dtype).div_(255).sub_(mean).div_(std)


def generator(*purpose: str | int) -> torch.Generator:
    """Return a source of random numbers for one purpose, such as ("permutation", seed, epoch).

    It is apart from torch's global one, which dropout and initialisation use: drawing from one leaves the other as it
    was. The purpose is hashed because sums collide: ``seed + epoch``, which ``DistributedSampler`` takes, gives seed 0
    in epoch 1 the same numbers as seed 1 in epoch 0.
    """
    digest = blake2b("/".join(map(str, purpose)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)  # manual_seed takes what fits an int64
