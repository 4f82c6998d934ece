"""Lists the container formats that can be read: the built-in ones, and those of an entry point group."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from ckptdoctor.checkpoint import Checkpoint, Container, Source
from ckptdoctor.errors import UsageError

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

# modules with the attributes of ``Format``, in the order in which they are asked; the one that is quickest to rule
# out comes first, and the others (which bring the pickle machine) are not even imported for its files
BUILT_IN = (
    "ckptdoctor.formats.safetensors",
    "ckptdoctor.formats.torch.zip",
    "ckptdoctor.formats.torch.legacy",
    "ckptdoctor.formats.gguf",
    "ckptdoctor.formats.arrays.npz",
    "ckptdoctor.formats.arrays.npy",
    "ckptdoctor.formats.torch.tar",
    "ckptdoctor.formats.torch.script",
    "ckptdoctor.formats.torch.exported",
    "ckptdoctor.formats.arrays.pickled",
)

# those that are for other programs: what is in them is shown and compared, but neither judged nor repaired
FOREIGN = frozenset({"GGUF file"})

# the same for checkpoints that are a folder of files; they are asked when a folder is named, with a ``FolderSource``
FOLDERS: tuple[str, ...] = (
    "ckptdoctor.formats.folders.dcp",
    "ckptdoctor.formats.folders.unpacked_archive",
    "ckptdoctor.formats.folders.deepspeed",
    "ckptdoctor.formats.folders.megatron",
    "ckptdoctor.formats.folders.trainer",
    "ckptdoctor.formats.folders.accelerate",
    "ckptdoctor.formats.folders.sharded",
    "ckptdoctor.formats.folders.model_folder",
)

# an installed distribution adds a format by naming such a module in this entry point group
ENTRY_POINT_GROUP = "ckptdoctor.formats"


class Format(Protocol):
    """What each format's module offers."""

    NAME: str

    def examine(self, source: Source, head: bytes) -> Container | None:
        """Return what the file is, when it is of this format (damaged, perhaps), or None when it is not.

        Raises nothing.
        """

    def read(self, source: Source, container: Container) -> Checkpoint:
        """Return the contents, from the headers alone. Raises DamagedError."""

    def write(self, wanted: Wanted, source: Source | None) -> Recipe:
        """Return how to write what is wanted: as a copy of the source, or with None as a new file out of nouns alone.

        Raises UnprovenError, RefusedError or DamagedError.
        """


def built_in() -> Iterator[Format]:
    """Yield the built-in formats; each is imported when the ones before it did not match."""
    for name in BUILT_IN:
        yield _imported(name)


def folder_formats() -> Iterator[Format]:
    """Yield the formats of folders, in the order in which they are asked."""
    for name in FOLDERS:
        yield _imported(name)


@cache
def _imported(name: str) -> Format:
    return cast(Format, import_module(name))  # a module fits the protocol; a test holds each one against it


@cache
def plugged_in() -> tuple[Format, ...]:
    """Return the formats that installed distributions add, sorted by name.

    Asked only for files that nothing else knows.
    """
    from importlib.metadata import entry_points  # slow to import

    found = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name)
    return tuple([cast(Format, point.load()) for point in found])


def format_named(name: str) -> Format:
    """Return the format called ``name``. Raises UsageError when there is none."""
    for formats in (built_in, folder_formats, plugged_in):
        for format_ in formats():
            if name == format_.NAME:
                return format_
    raise UsageError(f'No format is called "{name}".')
