"""``torch.save`` wrote tar archives before torch 0.1.10: a pickle, its tensors and its storages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, Source
from ckptdoctor.formats.recognise.tars import TORCH_MEMBERS, is_tar, members_of
from ckptdoctor.formats.unrepairable import refused

if TYPE_CHECKING:
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

__all__ = ["NAME", "examine", "read", "write"]

NAME = "torch tar"


def examine(source: Source, head: bytes) -> Container | None:
    """Return a tar archive with the three members of torch, or None for any other file.

    What is wrong inside, ``read`` says.
    """
    if not is_tar(head) or not members_of(source).keys() & TORCH_MEMBERS:
        return None
    return Container(source.path, source.size, NAME, head, True, identity=source.identity)


def read(source: Source, container: Container) -> Checkpoint:
    """Return the contents, from the pickles and the tables of tensors and storages; no value is read.

    Raises DamagedError.
    """
    from ckptdoctor.formats.torch.tar.contents import read_tar

    return read_tar(source, container)


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Raise RefusedError: a file this old is converted, not repaired."""
    raise refused(wanted.original.path, NAME)
