"""Makes long range copies out of short ones: what is written between two copies often stands in the original too."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.checkpoint import Source
from ckptdoctor.writing.recipe import Copy, Literal, Segment

# a longer literal between two copies is never the original's header or descriptor, and not worth comparing
_LONGEST = 1 << 17


def bridged(segments: Sequence[Segment], source: Source) -> tuple[Segment, ...]:
    """The same output, with copies that continue each other made one.

    A shift by a multiple of the alignment leaves every header and descriptor between two storages as it was, so that
    a file with a longer pickle is mostly one range of the original.
    """
    merged: list[Segment] = []
    for segment in segments:
        if isinstance(segment, Copy) and merged and _continues(merged, segment, source):
            continue
        merged.append(segment)
    return tuple(merged)


def _continues(merged: list[Segment], after: Copy, source: Source) -> bool:
    """Whether ``after`` was joined to the copy that ends ``merged``, or to the one before its last literal."""
    between = merged[-1] if isinstance(merged[-1], Literal) else None
    before = merged[-2] if between is not None and len(merged) > 1 else merged[-1]
    if not isinstance(before, Copy):
        return False
    stop = before.offset + before.length
    gap = after.offset - stop
    if between is not None and not (gap == between.length <= _LONGEST and source.read(stop, gap) == between.data):
        return False
    if between is None and gap:
        return False
    del merged[-1 if between is None else -2 :]
    merged.append(Copy(before.offset, before.length + gap + after.length))
    return True
