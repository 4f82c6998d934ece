"""Describes an output file as a list of segments: new bytes, ranges of the original, and bytes made while writing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
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
    """How to make an output file from the file ``source``, whose permissions it gets, and from others.

    Where the output is a folder, ``name`` is the name of the file with the tensors, and ``beside`` are the recipes of
    the other files. Where the source itself is changed, ``inserted`` bytes come in front of it first and shift it.
    """

    source: str
    segments: tuple[Segment, ...]
    name: str = ""
    beside: tuple[Recipe, ...] = ()
    inserted: int = 0

    @property
    def size(self) -> int:
        """Bytes of the output."""
        return sum(segment.length for segment in self.segments)

    @property
    def new_bytes(self) -> int:
        """Bytes of the output that are not copied from the original."""
        return sum(segment.length for segment in self.segments if not isinstance(segment, Copy))


class CopiedRanges:
    """For every byte of an output: the file and the byte that it is a copy of."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._starts = [0, *accumulate(segment.length for segment in recipe.segments)]
        # of the source's range that was found last, in which what is asked next is as a rule: where it begins and ends
        # in the output, and how far it has moved
        self._last = 0, 0, 0

    def source(self, at: int) -> int | None:
        """Return the byte of a source that the output's byte ``at`` is a copy of, or None where it is new."""
        index = bisect_right(self._starts, at) - 1
        segment = self._recipe.segments[index] if index < len(self._recipe.segments) else None
        return segment.offset + at - self._starts[index] if isinstance(segment, Copy) else None

    def holds(self, at: int, origin: int, length: int) -> bool:
        """Return whether ``length`` bytes from ``at`` on are one range of the recipe's source, from ``origin`` on."""
        begin, end, moved = self._last
        if not begin <= at < end:
            index = bisect_right(self._starts, at) - 1
            segment = self._recipe.segments[index] if index < len(self._recipe.segments) else None
            if not isinstance(segment, Copy) or segment.file not in (None, self._recipe.source):
                return False
            begin = self._starts[index]
            end, moved = begin + segment.length, segment.offset - begin
            self._last = begin, end, moved
        return at + moved == origin and at + length <= end

    def copied_from(self, at: int, wanted: Copy) -> bool:
        """Return whether the bytes from ``at`` on are the range ``wanted``."""
        file, origin, length = wanted.file or self._recipe.source, wanted.offset, wanted.length
        index = bisect_right(self._starts, at) - 1
        while length > 0:
            if index >= len(self._recipe.segments):
                return False
            segment, inside = self._recipe.segments[index], at - self._starts[index]
            if segment.length:
                if not isinstance(segment, Copy) or (segment.file or self._recipe.source) != file:
                    return False
                if segment.offset + inside != origin:
                    return False
                step = min(length, segment.length - inside)
                at, origin, length = at + step, origin + step, length - step
            index += 1
        return True


def with_bytes(recipe: Recipe, bytes_at: Mapping[int, int]) -> Recipe:
    """Return the same with other bytes wherever these bytes of the source are copied: offset → what is written."""
    segments: list[Segment] = []
    for segment in recipe.segments:
        if not isinstance(segment, Copy) or segment.file not in (None, recipe.source):
            segments.append(segment)
            continue
        at, end = segment.offset, segment.offset + segment.length
        for offset in sorted(each for each in bytes_at if at <= each < end):
            if offset > at:
                segments.append(Copy(at, offset - at, segment.file))
            segments.append(Literal(bytes([bytes_at[offset]])))
            at = offset + 1
        if at < end or not segment.length:
            segments.append(Copy(at, end - at, segment.file))
    return Recipe(recipe.source, tuple(segments), recipe.name, recipe.beside)
