"""Reads the bytes that segments mean, and sums them: many at once, in threads, which reading and summing let run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from zlib import crc32

from ckptdoctor.checkpoint import FileSource, progress
from ckptdoctor.writing.recipe import Generated, Literal, Segment

_CHUNK = 1 << 20
_WORKERS = 2
# what one thread does in one go: small enough to share the work, large enough not to be spent on handing it out
_BYTES, _MOST = 64 << 20, 2000

Data = Sequence[Segment]


class Bytes:
    """Gives the bytes of segments; each file is opened once. Ranges that name none are of ``own``."""

    def __init__(self, own: str | None = None) -> None:
        self._own = own
        self._stack = ExitStack()
        self._files: dict[str, FileSource] = {}

    def __enter__(self) -> Bytes:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def of(self, data: Data) -> Iterator[bytes]:
        """Add it up chunk by chunk."""
        for segment in data:
            if isinstance(segment, Literal):
                yield segment.data
            elif isinstance(segment, Generated):
                yield from segment.chunks()
            else:
                file, end = segment.file or self._own, segment.offset + segment.length
                assert file is not None
                for at in range(segment.offset, end, _CHUNK):
                    yield self.file(file).read(at, min(_CHUNK, end - at))

    def file(self, path: str) -> FileSource:
        """Return the open file at this path."""
        if path not in self._files:
            self._files[path] = self._stack.enter_context(FileSource(path))
        return self._files[path]

    def checksum(self, data: Data) -> int:
        """Return the CRC-32 of all of it."""
        crc = 0
        for chunk in self.of(data):
            crc = crc32(chunk, crc)
        return crc


def checksums(every: Sequence[Data], own: str | None = None) -> list[int]:
    """Return the checksum of each. Ranges that name no file are of ``own``."""
    from concurrent.futures import ThreadPoolExecutor  # an archive may be read without

    total = sum([segment.length for data in every for segment in data])
    groups = list(batches(every))
    found: list[int] = []
    with progress.phase("checksums", total) as reading, ThreadPoolExecutor(_WORKERS) as pool:
        for group, sums in zip(groups, pool.map(partial(_summed, own), groups), strict=True):
            found += sums
            reading.advance(sum([segment.length for data in group for segment in data]))
    return found


def _summed(own: str | None, group: Sequence[Data]) -> list[int]:
    with Bytes(own) as files:
        return [files.checksum(data) for data in group]


def batches(every: Sequence[Data]) -> Iterator[list[Data]]:
    """Yield the same in groups for one thread each, in order."""
    group: list[Data] = []
    held = 0
    for data in every:
        group.append(data)
        held += sum(segment.length for segment in data)
        if held >= _BYTES or len(group) >= _MOST:
            yield group
            group, held = [], 0
    if group:
        yield group
