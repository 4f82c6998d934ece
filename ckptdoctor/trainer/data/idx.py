"""IDX files, the format of MNIST and Fashion-MNIST.

As http://yann.lecun.com/exdb/mnist/ describes it: two bytes of zero, a byte for the type (8: unsigned bytes), a byte
for the number of dimensions, each dimension as a big-endian 32-bit integer, then the values, the last dimension
fastest.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import torch

from ckptdoctor.errors import DamagedError, HostileError
from ckptdoctor.trainer.data.dataset import Dataset, Split
from ckptdoctor.trainer.data.published import locate
from ckptdoctor.trainer.data.reading import Source, as_tensor, opened

UNSIGNED_BYTES = 8

LARGEST = 2**30
"""Bytes of values that a header may claim; the real files have 47 million."""

DIGITS = tuple("0123456789")
CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def mnist(directory: Path) -> Dataset:
    """The 70,000 handwritten digits, from a directory of their four files."""
    train, test = splits("mnist", directory)
    return Dataset("mnist", train, test, DIGITS, mean=(0.1307,), std=(0.3081,))


def fashion_mnist(directory: Path) -> Dataset:
    """The 70,000 pieces of clothing, from a directory of their four files."""
    train, test = splits("fashion-mnist", directory)
    return Dataset("fashion-mnist", train, test, CLOTHES, mean=(0.2860,), std=(0.3530,))


def splits(data: str, directory: Path) -> tuple[Split, Split]:
    """What is learnt from and what is tested with."""
    train_images, train_labels, test_images, test_labels = locate(data, directory).values()
    return split(train_images, train_labels), split(test_images, test_labels)


def split(images_path: Path, labels_path: Path) -> Split:
    """28×28 images and as many labels of ten classes. Raises DamagedError where the files hold anything else."""
    images = read(images_path, (None, 28, 28))
    labels = read(labels_path, (images.shape[0],))
    if (strange := labels >= 10).any():
        where = int(strange.nonzero()[0])
        raise DamagedError(
            f"{labels_path} is damaged at byte {8 + where}: the label of image {where} is {labels[where]}, "
            f"and there are 10 classes; download it again",
            offset=8 + where,
        )
    return Split(images.unsqueeze(1), labels.long())


def read(path: Path, shape: tuple[int | None, ...]) -> torch.Tensor:
    """The values of an IDX file as bytes of that shape, where None stands for any size but zero."""
    with opened(path) as source:
        sizes = header(source, shape)
        values = source.take(math.prod(sizes), f"its {sizes[0]} items")
        source.end()
    return as_tensor(values).view(sizes)


def header(source: Source, shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """The dimensions that a file claims. Raises DamagedError unless they fit and can be believed."""
    expected = bytes([0, 0, UNSIGNED_BYTES, len(shape)])
    magic = source.take(4, "its header")
    if magic != expected:
        raise source.damaged(f"it begins with {magic.hex(' ')} where this IDX file has {expected.hex(' ')}", 0)
    sizes: tuple[int, ...] = struct.unpack(f">{len(shape)}I", source.take(4 * len(shape), "its header"))
    for number, (size, wanted) in enumerate(zip(sizes, shape, strict=True)):
        if size == 0 or wanted not in (None, size):
            should = "at least 1" if wanted is None else str(wanted)
            raise source.damaged(f"dimension {number + 1} is {size} and should be {should}", 4 + 4 * number)
    if math.prod(sizes) > LARGEST:
        raise HostileError(
            f"{source.name} claims {' × '.join(map(str, sizes))} values in its header, "
            f"more than any such data set has: download it again",
            offset=4,
        )
    return sizes
