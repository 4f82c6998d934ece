"""What follows the header: ranges of the original's values, and values that edits make, one after another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.edits.elements import Elements, nbytes
from ckptdoctor.formats.elements import chunks
from ckptdoctor.noun import noun
from ckptdoctor.writing.recipe import Copy, Generated, Segment


@noun
class Piece:
    """``length`` bytes at ``offset`` of the original, or those of ``made``, which are views of its bytes."""

    offset: int
    length: int
    made: Elements | None = None


def made_piece(elements: Elements) -> Piece:
    """All bytes of these elements."""
    return Piece(0, nbytes(elements), elements)


class Values:
    """The values as an edit finds them."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._starts = [0, *accumulate(piece.length for piece in pieces)]

    def taken(self, begin: int, end: int) -> Iterator[Piece]:
        """The bytes of a range; what an edit has made is taken whole, for only whole tensors are."""
        index = bisect_right(self._starts, begin) - 1
        while begin < end:
            piece, start = self._pieces[index], self._starts[index]
            length = min(end, start + piece.length) - begin
            if length:
                yield piece if piece.made is not None else Piece(piece.offset + begin - start, length)
            begin, index = begin + length, index + 1


def united(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The same bytes with ranges joined where they meet, and without empty ones."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if not piece.length:
            continue
        if last and last.made is None and piece.made is None and last.offset + last.length == piece.offset:
            found[-1] = replace(last, length=last.length + piece.length)
        else:
            found.append(piece)
    return tuple(found)


def segments(path: str, pieces: Sequence[Piece]) -> Iterator[Segment]:
    """How to write the values."""
    for piece in pieces:
        if piece.made is None:
            if piece.length:
                yield Copy(piece.offset, piece.length)
        else:
            yield Generated(piece.length, _Maker(path, piece.made))


@noun
class _Maker:
    """Makes the bytes of elements out of the file at ``path``, which is opened each time."""

    path: str
    made: Elements

    def __call__(self) -> Iterator[bytes]:
        with FileSource(self.path) as source:
            yield from chunks(self.made, lambda _, offset, length: source.read(offset, length))
