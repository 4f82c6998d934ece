"""Files of published data sets are found where other tools put them, and read exactly.

Not a byte less, not a byte more, and no memory for mere claims: what a header says costs nothing before it is read.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os.path import exists, isdir, isfile
from pathlib import Path
from typing import Protocol

import torch

from ckptdoctor.errors import DamagedError, TruncatedError, UnreadableError, UsageError


@dataclass(frozen=True)
class PublishedData:
    """A data set as its makers publish it."""

    title: str
    homepage: str
    files: tuple[str, ...]
    subfolders: tuple[str, ...]
    """Where the files may be below --data-dir, as other tools put them."""


IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

PUBLISHED_DATA = {
    "mnist": PublishedData("MNIST", "http://yann.lecun.com/exdb/mnist/", IDX_FILES, ("MNIST/raw", "mnist")),
    "fashion-mnist": PublishedData(
        "Fashion-MNIST",
        "https://github.com/zalandoresearch/fashion-mnist",
        IDX_FILES,
        ("FashionMNIST/raw", "fashion-mnist", "data/fashion"),
    ),
    "cifar10": PublishedData(
        "CIFAR-10 (binary version)",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
        ("cifar-10-batches-bin",),
    ),
}


def folder(data: str, data_dir: str | None) -> Path:
    """Return the directory of --data-dir.

    Raises UsageError when none was given, UnreadableError when it is not there.
    """
    published = PUBLISHED_DATA[data]
    if data_dir is None:
        raise UsageError(
            f"{published.title} is not part of ckptdoctor: download it from {published.homepage} and give "
            "its folder with --data-dir DIR"
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
    """Return the place of each file of a set. Raises UnreadableError that names those that are missing.

    All must be in one place: the directory itself or one of the usual folders below it.
    """
    published = PUBLISHED_DATA[data]
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
    """Return a file under its own name or one of its other spellings, plain or gzip, or None where there is none."""
    # some archives were unpacked by programs that took "-idx3-ubyte" for a suffix and made it one
    for spelling in (name, name.replace("-idx", ".idx")):
        for path in (place / spelling, place / f"{spelling}.gz"):
            if isfile(path):
                return path
    return None


GZIP = b"\x1f\x8b"
CHUNK = 2**20


class Readable(Protocol):
    """Anything with bytes to read: a file, what gzip unpacks, a file in an archive."""

    def read(self, count: int, /) -> bytes:
        """Return some of the next ``count`` bytes; none at the end."""


class ImageSource:
    """A stream that is read from its beginning to its end. ``name`` is what messages call it."""

    def __init__(self, stream: Readable, name: str) -> None:
        self.stream = stream
        self.name = name
        self.position = 0

    def take(self, count: int, what: str) -> bytearray:
        """Return the next ``count`` bytes. Raises TruncatedError when there are fewer."""
        taken = self.take_most(count)
        if len(taken) < count:
            raise TruncatedError(
                f"{self.name} ends after {self.position} bytes, {count - len(taken)} before the end of {what}: "
                f"it is cut short; download it again",
                offset=self.position,
            )
        return taken

    def take_most(self, count: int) -> bytearray:
        """Return the next ``count`` bytes, or as many as there are.

        In chunks: what a header claims costs no memory before that much has really been read.
        """
        taken = bytearray()
        while len(taken) < count and (chunk := self.read(min(CHUNK, count - len(taken)))):
            taken += chunk
        return taken

    def end(self) -> None:
        """Raise DamagedError unless this is the end. gzip compares its checksum only here."""
        where = self.position
        if self.read(1):
            raise self.damaged("it continues after its last image", where)

    def damaged(self, what: str, offset: int) -> DamagedError:
        """Return the error for what is wrong at a byte of the contents."""
        return DamagedError(f"{self.name} is damaged at byte {offset}: {what}; download it again", offset=offset)

    def read(self, count: int, /) -> bytes:
        """Return some of the next ``count`` bytes; none at the end."""
        try:
            chunk = self.stream.read(count)
        except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.ReadError) as error:
            raise self._broken(error) from error
        except OSError as error:
            raise UnreadableError(f"{self.name} cannot be read: {error.strerror or error}") from error
        self.position += len(chunk)
        return chunk

    def _broken(self, error: Exception) -> DamagedError:
        where = f"after {self.position} bytes of its contents"
        if isinstance(error, EOFError):
            return TruncatedError(
                f"{self.name} is cut short: its compressed bytes end {where}; download it again", offset=self.position
            )
        return DamagedError(
            f"{self.name} is damaged {where}: {str(error).rstrip('.')}; download it again", offset=self.position
        )


@contextmanager
def opened(path: Path) -> Iterator[ImageSource]:
    """Open a file as a Source.

    Its first bytes say whether it is gzip: a browser may have unpacked it and kept the name.
    """
    try:
        file = path.open("rb")
        start = file.peek(2)[:2]
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror or error}") from error
    with file:
        if start == GZIP:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield ImageSource(unpacked, str(path))
        else:
            yield ImageSource(file, str(path))


def as_tensor(contents: bytearray) -> torch.Tensor:
    """Return bytes as a tensor over the same memory. There must be at least one."""
    return torch.frombuffer(contents, dtype=torch.uint8)
