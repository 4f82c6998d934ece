"""The bytes of a recipe as blocks of about a megabyte, however small or large its segments are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint.source import read_at
from ckptdoctor.errors import WriteError
from ckptdoctor.wording import plural
from ckptdoctor.writing.originals import Originals
from ckptdoctor.writing.recipe import Copy, Literal, Segment

# Two blocks fit the second-level cache of a core: comparing them then costs little beside reading them
BLOCK = 1 << 20
# Copied ranges shorter than this are read together with their neighbours
SMALL = 64 << 10


class Reading:
    """Reads copied ranges, through a window that serves many small ranges of one file at once."""

    def __init__(self, files: Originals) -> None:
        self._files = files
        self._file: str | None = None
        self._start = 0
        self._window = memoryview(b"")

    def small(self, segment: Copy) -> bytes:
        """A range shorter than a block, which holds nothing else in memory."""
        begin = segment.offset - self._start
        if segment.file != self._file or not 0 <= begin <= begin + segment.length <= len(self._window):
            # only where ranges follow each other it pays to read far ahead
            follows = segment.file == self._file and 0 <= begin - len(self._window) < BLOCK
            ahead = BLOCK if follows or not self._window else SMALL
            self._window = memoryview(read_at(self._files.fd(segment.file), ahead, segment.offset))
            self._file, self._start, begin = segment.file, segment.offset, 0
        data = bytes(self._window[begin : begin + segment.length])
        return data if len(data) == segment.length else b"".join(self.large(segment))

    def large(self, segment: Copy) -> Iterator[bytes]:
        """A range of any length, block by block. Raises WriteError when the file ends before."""
        offset, end = segment.offset, segment.offset + segment.length
        while offset < end:
            data = read_at(self._files.fd(segment.file), min(BLOCK, end - offset), offset)
            if not data:
                raise WriteError(f"The original ended at byte {offset} while it was copied; repair it again.")
            yield data
            offset += len(data)


def blocks(segments: Iterable[Segment], original: Reading) -> Iterator[bytes | memoryview]:
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


def _parts(segment: Segment, original: Reading) -> Iterator[bytes | memoryview]:
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
            raise WriteError(
                f"{plural(made, 'byte was', 'bytes were')} made where {segment.length} were planned; the "
                "original is untouched."
            )
