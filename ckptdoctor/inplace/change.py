"""Describes what a change in place writes into each file: few bytes, at stated places, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from ckptdoctor.errors import RefusedError
from ckptdoctor.noun import noun
from ckptdoctor.writing.recipe import Copy, Literal, Recipe, Segment

# bytes that one change writes at most: from there on a new file costs little more
MOST_WRITTEN = 64 << 20
# what a device writes whole or not at all
SECTOR = 512


class NotInPlaceError(RefusedError):
    """A file cannot be changed where it is. The message is a reason; whoever knows the command completes it."""


@noun
class Write:
    """New bytes, and where they are in the file afterwards."""

    at: int
    data: bytes

    @property
    def end(self) -> int:
        """The byte behind them."""
        return self.at + len(self.data)


@noun
class FileChange:
    """What becomes of one file, whose ``name`` is relative to the folder of the journal.

    First ``inserted`` bytes come in front of it, which shifts all of it. The ``writes`` follow, sorted, none of them
    over another; then it has ``new_size`` bytes.
    """

    name: str
    old_size: int
    new_size: int
    inserted: int
    writes: tuple[Write, ...]

    @property
    def written(self) -> int:
        """Bytes that are written into the file."""
        return sum([len(each.data) for each in self.writes])

    @property
    def overwritten(self) -> list[tuple[int, int]]:
        """The ranges of the old file that do not survive, as begins and ends."""
        found = []
        for each in self.writes:
            begin, end = max(each.at - self.inserted, 0), min(each.end - self.inserted, self.old_size)
            if begin < end:
                found.append((begin, end))
        kept = self.new_size - self.inserted
        if kept < self.old_size:
            found.append((kept, self.old_size))
        return found


def in_place(recipe: Recipe, name: str, size: int, read: Callable[[int, int], bytes]) -> FileChange:
    """Return what the recipe changes in its source, which has ``size`` bytes: ranges that stay where they are, stay.

    Raises NotInPlaceError where that writes more than a new file is worth, and where bytes are computed.
    """
    placed: list[tuple[int, Segment]] = []
    at = 0
    for segment in recipe.segments:
        placed.append((at, segment))
        at += segment.length
    writes: list[Write] = []
    total = 0
    for start, segment in placed:
        copied = segment if isinstance(segment, Copy) and segment.file in (None, recipe.source) else None
        if not segment.length or (copied is not None and start - copied.offset == recipe.inserted):
            continue
        total += segment.length
        if total > MOST_WRITTEN:
            raise NotInPlaceError(f"more than {MOST_WRITTEN >> 20} MB would be written in place")
        if isinstance(segment, Literal):
            data = segment.data
        elif copied is not None:
            data = read(copied.offset, copied.length)
        else:
            raise NotInPlaceError("bytes of tensors would be written, not only names")
        if writes and writes[-1].end == start:
            writes[-1] = Write(writes[-1].at, writes[-1].data + data)
        else:
            writes.append(Write(start, data))
    if size - (at - recipe.inserted) > MOST_WRITTEN:
        raise NotInPlaceError(f"more than {MOST_WRITTEN >> 20} MB would be cut off, and kept to undo that")
    return FileChange(name, size, at, recipe.inserted, tuple([each for each in writes if each.data]))
