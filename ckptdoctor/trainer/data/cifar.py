"""The binary version of CIFAR-10.

As https://www.cs.toronto.edu/~kriz/cifar.html describes it: a file is a row of records, each of a byte for the label
and 3,072 bytes for the image: the 32×32 pixels row by row in red, then in green, then in blue. ``batches.meta.txt`` has
the names of the classes, one on a line. The Python version of the set is made of pickles, and a pickle can run anything
when it is loaded: it is never read.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from os.path import exists, isfile
from pathlib import Path
from typing import IO, cast

import torch

from ckptdoctor.errors import DamagedError, TruncatedError, UnreadableError, UsageError
from ckptdoctor.trainer.data.dataset import Dataset, DataSplit
from ckptdoctor.trainer.data.files import CHUNK, PUBLISHED_DATA, ImageSource, as_tensor, locate, opened, spelled

ARCHIVE = "cifar-10-binary.tar.gz"
META = "batches.meta.txt"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PICKLES = ("cifar-10-batches-py", "cifar-10-python.tar.gz", "data_batch_1")

SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32

LARGEST = 10_000
"""Images in a file, as published."""


def cifar10(directory: Path) -> Dataset:
    """Return the 60,000 small photographs, from a directory of their files or of the archive as it was downloaded."""
    parts, classes = read_files(directory) if has_files(directory) else read_archive(directory / ARCHIVE)
    *train, test = (parts[name] for name in PUBLISHED_DATA["cifar10"].files)
    if len({len(part) for part in train}) > 1:  # a file that was cut between two images looks whole by itself
        counts = ", ".join(str(len(part)) for part in train)
        raise DamagedError(
            f"the training files of CIFAR-10 in {directory} hold {counts} images, not the same number each: "
            "download them again"
        )
    inputs, labels = torch.cat([part.inputs for part in train]), torch.cat([part.labels for part in train])
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    return Dataset("cifar10", DataSplit(inputs, labels), test, classes, mean, std)


def has_files(directory: Path) -> bool:
    """Return whether the files themselves are there.

    When neither they nor the archive are, raises what to do about it.
    """
    try:
        locate("cifar10", directory)
    except UnreadableError:
        if isfile(directory / ARCHIVE):
            return False
        for name in PICKLES:
            if exists(directory / name):
                raise UsageError(
                    f"{directory / name} is the Python version of CIFAR-10, which consists of pickles, and "
                    f"ckptdoctor never loads them: get the binary version, {ARCHIVE}, from "
                    f"{PUBLISHED_DATA['cifar10'].homepage}"
                ) from None
        raise
    return True


def read_files(directory: Path) -> tuple[dict[str, DataSplit], tuple[str, ...]]:
    """Return every file of the set, and the names of the classes."""
    parts = {}
    paths = locate("cifar10", directory)
    for name, path in paths.items():
        with opened(path) as source:
            parts[name] = records(source)
    meta = spelled(next(iter(paths.values())).parent, META)
    if meta is None:
        return parts, CLASSES
    with opened(meta) as source:
        return parts, names(source)


def read_archive(path: Path) -> tuple[dict[str, DataSplit], tuple[str, ...]]:
    """Return the same from the archive as it is published. Nothing is extracted to disk."""
    found: dict[str, DataSplit] = {}
    classes: tuple[str, ...] = CLASSES
    with opened(path) as archive:
        for name, member in members(archive):
            if name == META:
                classes = names(member)
            elif name in PUBLISHED_DATA["cifar10"].files:
                found[name] = records(member)
    if missing := [name for name in PUBLISHED_DATA["cifar10"].files if name not in found]:
        raise DamagedError(
            f"{path} does not hold {', '.join(missing)}: it is damaged, or another archive with that name"
        )
    return found, classes


def members(archive: ImageSource) -> Iterator[tuple[str, ImageSource]]:
    """Yield every file in an archive with the last part of its name, to be read before the next one is asked for."""
    try:
        # an open stream goes in, not a path: gzip then compares its checksum, which tarfile's own unpacking does not
        with tarfile.open(fileobj=cast(IO[bytes], archive), mode="r|") as tar:
            for entry in tar:
                if not 0 <= entry.size <= LARGEST * RECORD:
                    raise archive.damaged(f"it claims a file of {entry.size} bytes", entry.offset)
                if entry.isreg() and (stream := tar.extractfile(entry)):
                    yield entry.name.rpartition("/")[2], ImageSource(stream, f"{archive.name}/{entry.name!r}")
    except (tarfile.TarError, ValueError) as error:
        raise archive.damaged(f"as an archive: {error}", archive.position) from error
    while archive.take_most(CHUNK):  # to the end, where gzip has its checksum
        pass


def records(source: ImageSource) -> DataSplit:
    """Return the images of one file. Raises DamagedError unless it is whole records with labels of ten classes."""
    contents = source.take_most(LARGEST * RECORD)
    source.end()
    count, rest = divmod(len(contents), RECORD)
    if rest or not count:
        raise TruncatedError(
            f"{source.name} ends after {len(contents)} bytes, which is not a whole number of images of "
            f"{RECORD} bytes: it is cut short or not a CIFAR-10 file; download it again",
            offset=len(contents),
        )
    table = as_tensor(contents).view(count, RECORD)
    labels = table[:, 0].long()
    if (strange := labels >= len(CLASSES)).any():
        where = int(strange.nonzero()[0])
        raise source.damaged(f"the label of image {where} is {labels[where]}, and there are 10 classes", where * RECORD)
    return DataSplit(table[:, 1:].reshape(count, *SHAPE), labels)


def names(source: ImageSource) -> tuple[str, ...]:
    """Return the names of the classes, one on each line. Raises DamagedError unless they are ten words."""
    text = source.take_most(4096).decode("ascii", errors="replace")
    source.end()
    lines = tuple(text.split())
    if len(lines) != len(CLASSES) or not "".join(lines).isalnum():
        raise source.damaged(f"it should name {len(CLASSES)} classes, one on each line", 0)
    return lines
