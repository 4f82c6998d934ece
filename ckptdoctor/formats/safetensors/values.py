"""What follows the header: ranges of the original's values, and values that edits make, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

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


def segments(path: str, pieces: Sequence[Piece], storages: Mapping[str, int]) -> Iterator[Segment]:
    """How to write the values; ``storages`` says where those of the original begin."""
    for piece in pieces:
        if piece.made is None:
            if piece.length:
                yield Copy(piece.offset, piece.length)
        else:
            yield Generated(piece.length, _Maker(path, piece.made, storages))


@noun
class _Maker:
    """Makes the bytes of elements out of the file at ``path``, which is opened each time."""

    path: str
    made: Elements
    storages: Mapping[str, int]

    def __call__(self) -> Iterator[bytes]:
        with FileSource(self.path) as source:
            yield from chunks(self.made, lambda key, offset, length: source.read(self.storages[key] + offset, length))
