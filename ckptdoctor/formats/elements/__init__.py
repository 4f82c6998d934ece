"""Makes the bytes of elements that edits put together: chunk by chunk, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod

from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.progress import WORTH_A_THREAD, in_order
from ckptdoctor.edits.casts import alike, cast_in
from ckptdoctor.edits.elements import (
    Calculated,
    Converted,
    Dequantized,
    Elements,
    Joined,
    Normed,
    Reshaped,
    Scattered,
    View,
    narrowed,
    nbytes,
    reshaped,
)
from ckptdoctor.formats.elements.gather import BLOCK, gather
from ckptdoctor.formats.elements.norms import normed
from ckptdoctor.formats.elements.quantization import dequantized
from ckptdoctor.formats.elements.sparse import scattered

_READ = 4 << 20  # bytes that are cast from one reading
_TASK = 2 << 20  # bytes that a thread casts in one go

# reads ``length`` bytes at ``offset`` of a storage by its name
Read = Callable[[str, int, int], bytes]


def chunks(elements: Elements, read: Read, block: int = BLOCK) -> Iterator[bytes]:
    """Yield the bytes of the elements in C order."""
    if isinstance(elements, View):
        yield from _viewed(elements, read, block)
    elif isinstance(elements, Converted):
        yield from _cast(elements, read, block)
    elif isinstance(elements, Reshaped):
        yield from chunks(elements.inner, read, block)
    elif isinstance(elements, Normed):
        yield from normed(elements, lambda part, size: chunks(part, read, min(block, size)))
    elif isinstance(elements, Dequantized):
        yield from dequantized(elements, lambda part, size: chunks(part, read, min(block, size)))
    elif isinstance(elements, Scattered):
        yield from scattered(elements, lambda part, size: chunks(part, read, min(block, size)))
    elif isinstance(elements, Calculated):
        from ckptdoctor.computing.making import calculated

        yield from calculated(elements, lambda part, size: chunks(part, read, min(block, size)))
    elif prod(elements.shape[: elements.dim]) == 1:
        for part in elements.parts:
            yield from chunks(part, read, block)
    elif 0 not in elements.shape:
        yield from _woven(elements, read, block)


def one_after_another(several: Iterable[Elements], read: Read) -> Iterator[bytes]:
    """Yield the bytes of all of these elements in turn."""
    for group in alike(several, cast_in):
        first = cast_in(group[0])
        if len(group) == 1 or first is None:
            yield from chunks(group[0], read)
            continue
        from ckptdoctor.casting.cast import cast

        given = [made.parts[0] for made in map(cast_in, group) if made is not None]
        yield cast(b"".join([chunk for part in given for chunk in chunks(part, read)]), first.kind, first.dtype)


def _viewed(view: View, read: Read, block: int) -> Iterator[bytes]:
    def bytes_at(offset: int, length: int) -> bytes:
        begin = view.start + offset
        return read(view.source, begin, length) if view.held is None else bytes(view.held[begin : begin + length])

    yield from gather(bytes_at, view.shape, view.stride, 0, view.width, block)


def _cast(elements: Converted, read: Read, block: int) -> Iterator[bytes]:
    from ckptdoctor.casting.cast import cast, in_pieces

    width = BY_NAME[elements.kind].bits // 8
    given = chunks(elements.parts[0], read, min(block, _READ))
    if nbytes(elements) < WORTH_A_THREAD:
        for piece in in_pieces(given, width):
            yield cast(piece, elements.kind, elements.dtype)
        return

    def converted(some: bytes | memoryview) -> bytes:
        return b"".join([cast(piece, elements.kind, elements.dtype) for piece in in_pieces((some,), width)])

    yield from in_order(converted, in_pieces(given, width, _TASK // width))


def _woven(elements: Joined, read: Read, block: int) -> Iterator[bytes]:
    """Yield some indices of the first dimension at a time; one so large is taken apart itself."""
    size = elements.shape[0]
    each = nbytes(elements) // size
    if each > block:
        for index in range(size):
            yield from chunks(reshaped(narrowed(elements, 0, index, index + 1), elements.shape[1:]), read, block)
        return
    step = block // each
    for first in range(0, size, step):
        yield _block(narrowed(elements, 0, first, min(size, first + step)), elements.dim, read, block)


def _block(elements: Elements, dim: int, read: Read, block: int) -> bytes:
    """Return what fits a block: the lines of its parts in turn."""
    assert isinstance(elements, Joined)
    lines = prod(elements.shape[:dim])
    line = nbytes(elements) // lines
    made = bytearray(nbytes(elements))
    at = 0
    for part in elements.parts:
        data = memoryview(b"".join(chunks(part, read, block)))
        width = len(data) // lines
        for index in range(lines):
            goal = index * line + at
            made[goal : goal + width] = data[index * width : (index + 1) * width]
        at += width
    return bytes(made)
