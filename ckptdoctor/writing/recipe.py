"""An output file as a list of segments: new bytes, ranges of the original, and bytes made while writing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Union

from ckptdoctor.noun import noun


@noun
class Literal:
    """New bytes."""

    data: bytes

    @property
    def length(self) -> int:
        """Bytes that this segment adds."""
        return len(self.data)


@noun
class Copy:
    """``length`` bytes of the original at ``offset``, unchanged; ``file`` None is the recipe's source."""

    offset: int
    length: int
    file: str | None = None


@noun
class Generated:
    """``length`` bytes made while writing, chunk by chunk; ``chunks`` may be called more than once (to verify)."""

    length: int
    chunks: Callable[[], Iterator[bytes]]


Segment = Union[Literal, Copy, Generated]


@noun
class Recipe:
    """How to make an output file from the file ``source``, whose permissions it gets, and from others."""

    source: str
    segments: tuple[Segment, ...]

    @property
    def size(self) -> int:
        """Bytes of the output."""
        return sum(segment.length for segment in self.segments)

    @property
    def new_bytes(self) -> int:
        """Bytes of the output that are not copied from the original."""
        return sum(segment.length for segment in self.segments if not isinstance(segment, Copy))
