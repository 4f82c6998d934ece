"""The bytes of a recipe as blocks of about a megabyte, however small or large its segments are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ckptdoctor.errors import WriteError
from ckptdoctor.writing.recipe import Copy, Literal, Segment

# Two blocks fit the second-level cache of a core: comparing them then costs little beside reading them
BLOCK = 1 << 20
# Copied ranges shorter than this are read together with their neighbours
SMALL = 64 << 10


class Original:
    """The file that ranges are copied from, read through a window that serves many small ranges at once."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._start = 0
        self._window = memoryview(b"")

    def small(self, segment: Copy) -> memoryview:
        """A range shorter than a block."""
        begin = segment.offset - self._start
        if not 0 <= begin <= begin + segment.length <= len(self._window):
            self._window = memoryview(os.pread(self._fd, BLOCK, segment.offset))
            self._start, begin = segment.offset, 0
        data = self._window[begin : begin + segment.length]
        if len(data) < segment.length:
            data = memoryview(b"".join(self.large(segment)))
        return data

    def large(self, segment: Copy) -> Iterator[bytes]:
        """A range of any length, block by block. Raises WriteError when the file ends before."""
        offset, end = segment.offset, segment.offset + segment.length
        while offset < end:
            data = os.pread(self._fd, min(BLOCK, end - offset), offset)
            if not data:
                raise WriteError(f"The original ended at byte {offset} while it was copied; repair it again.")
            yield data
            offset += len(data)


def blocks(segments: Iterable[Segment], original: Original) -> Iterator[bytes | memoryview]:
    """All bytes of the segments, in order.

    Raises WriteError when a generated segment has another length than it said, and when the original ends too early.
    """
    parts: list[bytes | memoryview] = []
    held = 0
    for segment in segments:
        for part in _parts(segment, original):
            if len(part) >= SMALL:
                if parts:
                    yield b"".join(parts)
                    parts, held = [], 0
                yield part
                continue
            parts.append(part)
            held += len(part)
            if held >= BLOCK:
                yield b"".join(parts)
                parts, held = [], 0
    if parts:
        yield b"".join(parts)


def _parts(segment: Segment, original: Original) -> Iterator[bytes | memoryview]:
    if isinstance(segment, Literal):
        view = segment.data
        yield from (view,) if len(view) <= BLOCK else (view[at : at + BLOCK] for at in range(0, len(view), BLOCK))
    elif isinstance(segment, Copy):
        if segment.length < SMALL:
            yield original.small(segment)
        else:
            yield from original.large(segment)
    else:
        made = 0
        for chunk in segment.chunks():
            made += len(chunk)
            yield from (chunk[at : at + BLOCK] for at in range(0, len(chunk), BLOCK))
        if made != segment.length:
            raise WriteError(f"{made} bytes were made where {segment.length} were planned; the original is untouched.")
