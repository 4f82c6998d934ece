"""Reads many files of a store in less time: what those of a run have in common is worked out once.

Successive checkpoints of a run have the same tensors, and most of their headers are the same bytes. While
``remembering`` lasts, ``formats.opened`` compares a file with those of its length that were read before. Where all that
reading looks at is the same, except for its place, its checksums and numbers such as a step, its contents are made of
those of the other, and are equal to what reading it would give. Whatever differs in any other way is read as any file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a single file is like no other
    from ckptdoctor.checkpoint import Checkpoint
    from ckptdoctor.formats.alike.remembered import Likeness, Remembered

_remembered: ContextVar[Remembered | None] = ContextVar("remembered", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Remember what is read meanwhile."""
    from ckptdoctor.formats.alike.remembered import Remembered

    before = _remembered.set(Remembered())
    try:
        yield
    finally:
        _remembered.reset(before)


def remembered() -> Remembered | None:
    """Return what is remembered; None where nothing is."""
    return _remembered.get()


def likeness_of(contents: Checkpoint) -> Likeness | None:
    """Return what these contents, just as they were read, are like."""
    known = _remembered.get()
    return known.likeness_of(contents) if known is not None else None
