"""The nouns of the data: two splits of images with their labels, and how images become numbers for a network."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Split:
    """Images and their labels, in the order of their source.

    ``inputs`` are bytes (N, channels, height, width), four times smaller than the floats they become, or, for points,
    float32 (N, 3). ``labels`` are int64 (N,), as ``torch.nn.functional.cross_entropy`` wants them.
    """

    inputs: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        """How many images there are."""
        return self.labels.shape[0]

    def first(self, count: int) -> Split:
        """The first ``count`` images; all, where there are no more. A copy, so that the rest can be let go."""
        return self if count >= len(self) else Split(self.inputs[:count].clone(), self.labels[:count].clone())


@dataclass(frozen=True)
class Dataset:
    """What a network learns from, and what it is tested with."""

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    """Of each channel, for values in [0, 1]."""
    std: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: (channels, height, width), or (3,) for points."""
        return tuple(self.train.inputs.shape[1:])


def prepared(inputs: torch.Tensor, dataset: Dataset, dtype: torch.dtype) -> torch.Tensor:
    """Numbers for a network: bytes to [0, 1], less the mean, over the standard deviation. Points only change dtype.

    Each operation rounds every value on its own, so an image has the same bits whether it is prepared alone, in a batch
    or with its whole split.
    """
    if inputs.dtype != torch.uint8:
        return inputs.to(dtype)
    channels = (-1, 1, 1)
    mean = torch.tensor(dataset.mean, dtype=dtype).view(channels)
    std = torch.tensor(dataset.std, dtype=dtype).view(channels)
    return inputs.to(dtype).div_(255).sub_(mean).div_(std)
