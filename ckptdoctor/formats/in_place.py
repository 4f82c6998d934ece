"""Writes a file with other bytes in the places of some storages, and everything else as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ckptdoctor.checkpoint import Source
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.errors import RefusedError
from ckptdoctor.writing.recipe import Copy, Literal, Recipe, Segment

# new bytes of a file from an offset on
Patch = tuple[int, tuple[Segment, ...]]


def new_checksums(wanted: Wanted) -> Mapping[str, int]:
    """Return the checksums of storages, by their keys, that are not what the file states."""
    stated = {each.key: each.crc32 for each in wanted.original.storages}
    return {key: each.crc for key, each in wanted.stored.items() if each.crc is not None and each.crc != stated[key]}


def write_in_place(wanted: Wanted, source: Source, stated: Iterable[tuple[int, bytes]] = ()) -> Recipe:
    """Return how to write the file with what ``wanted.stored`` puts in the place of storages.

    ``stated`` is what else is written, and where: their checksums. Raises RefusedError where such bytes belong to two
    records.
    """
    patches = [*_replaced(wanted, source), *[(at, (Literal(data),)) for at, data in stated]]
    return Recipe(source.file, tuple(_segments(source, patches)))


def _replaced(wanted: Wanted, source: Source) -> Iterator[Patch]:
    """Yield the bytes of storages that differ from those in the file."""
    for storage in wanted.original.storages:
        if storage.extent is None or storage.key not in wanted.stored:
            continue
        at = storage.extent.offset
        for segment in wanted.stored[storage.key].data:
            if not isinstance(segment, Copy) or segment.offset != at or segment.file not in (None, source.file):
                yield at, (segment,)
            at += segment.length


def _segments(source: Source, patches: Iterable[Patch]) -> Iterator[Segment]:
    at = 0
    for start, data in sorted(patches, key=lambda patch: patch[0]):
        if start < at:
            raise RefusedError(f"Two records of the file share byte {start:,}, so neither can be replaced.")
        if start > at:
            yield Copy(at, start - at)
        yield from data
        at = start + sum(each.length for each in data)
    if at < source.size:
        yield Copy(at, source.size - at)
