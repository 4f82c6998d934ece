"""What the sets to download are made of, where they are published, and what to say when they are missing."""

from __future__ import annotations

from dataclasses import dataclass
from os.path import exists, isdir, isfile
from pathlib import Path

from ckptdoctor.errors import UnreadableError, UsageError


@dataclass(frozen=True)
class Published:
    """A data set as its makers publish it."""

    title: str
    homepage: str
    files: tuple[str, ...]
    subfolders: tuple[str, ...]
    """Where the files may lie below --data-dir, as other tools put them."""


IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

PUBLISHED = {
    "mnist": Published("MNIST", "http://yann.lecun.com/exdb/mnist/", IDX_FILES, ("MNIST/raw", "mnist")),
    "fashion-mnist": Published(
        "Fashion-MNIST",
        "https://github.com/zalandoresearch/fashion-mnist",
        IDX_FILES,
        ("FashionMNIST/raw", "fashion-mnist", "data/fashion"),
    ),
    "cifar10": Published(
        "CIFAR-10 (binary version)",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
        ("cifar-10-batches-bin",),
    ),
}


def folder(data: str, data_dir: str | None) -> Path:
    """The directory of --data-dir. Raises UsageError when none was given, UnreadableError when it is not there."""
    published = PUBLISHED[data]
    if data_dir is None:
        raise UsageError(
            f"{published.title} is not part of ckptdoctor: download it from {published.homepage} "
            f"and say where it lies with --data-dir DIR"
        )
    path = Path(data_dir)
    if not isdir(path):  # os.path answers where Path raises: for a folder that may not be entered
        what = "is not a directory" if exists(path) else "does not exist"
        raise UnreadableError(
            f"{path} {what}: --data-dir must be the directory that holds {published.title}, "
            f"which is published at {published.homepage}"
        )
    return path


def locate(data: str, directory: Path) -> dict[str, Path]:
    """Where each file of a set lies. Raises UnreadableError that names those that are missing.

    All must be in one place: the directory itself or one of the usual folders below it.
    """
    published = PUBLISHED[data]
    places = [directory, *(directory / name for name in published.subfolders)]
    found = [{name: path for name in published.files if (path := spelled(place, name))} for place in places]
    best = max(found, key=len)
    if missing := [name for name in published.files if name not in best]:
        place = places[found.index(best)]
        raise UnreadableError(
            f"{published.title} is not complete in {place}: {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing (with or without .gz); published at {published.homepage}"
        )
    return best


def spelled(place: Path, name: str) -> Path | None:
    """A file under its own name or one of its other spellings, plain or gzip; None where there is none."""
    # some archives were unpacked by programs that took "-idx3-ubyte" for a suffix and made it one
    for spelling in (name, name.replace("-idx", ".idx")):
        for path in (place / spelling, place / f"{spelling}.gz"):
            if isfile(path):
                return path
    return None
