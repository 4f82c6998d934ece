"""Reads a file and its parity, and finds which blocks are lost and which of them can be rebuilt."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.errors import DamagedError, TruncatedError, UnreadableError
from ckptdoctor.noun import noun
from ckptdoctor.sealing.parity.layout import Layout
from ckptdoctor.sealing.parity.table import SUFFIX, ParityFile, read_parity, sum_of


@noun
class Losses:
    """Blocks of the file that are lost, and blocks of parity (by their own numbers)."""

    layout: Layout
    lost: tuple[int, ...]
    parity: tuple[int, ...]

    @property
    def by_group(self) -> dict[int, list[int]]:
        """The lost blocks of each group that has some."""
        found: dict[int, list[int]] = {}
        for each in self.lost:
            found.setdefault(each % self.layout.groups, []).append(each)
        return found

    @property
    def can_be_rebuilt(self) -> int:
        """How many of the lost blocks are in a group that has lost no more than its intact blocks of parity."""
        left = [self.layout.parity] * self.layout.groups
        for each in self.parity:
            left[each % self.layout.groups] -= 1
        return sum(len(blocks) for group, blocks in self.by_group.items() if len(blocks) <= left[group])

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The bytes of the file that are lost: where each range begins, and one past its end."""
        found: list[tuple[int, int]] = []
        for each in self.lost:
            start = each * self.layout.block
            stop = start + self.layout.length(each)
            found[-1:] = [(found[-1][0], stop)] if found and found[-1][1] == start else [*found[-1:], (start, stop)]
        return tuple(found)


def losses(source: FileSource, parity: ParityFile, work: Work) -> Losses:
    """Return what is lost of a file and of its parity. ``work`` counts the bytes of the file.

    What the disk cannot read is lost as well.
    """
    layout = parity.table.layout
    with closing(FileSource(parity.path)) as kept:
        lost = []
        for each in range(layout.blocks):
            length = layout.length(each)
            if not _is_intact(source, each * layout.block, length, parity.table.sum(each)):
                lost.append(each)
            work.advance(length)
        return Losses(layout, tuple(lost), tuple(_lost_parity(kept, parity)))


def lost_parity(parity: ParityFile) -> tuple[int, ...]:
    """Return the blocks of parity that are lost."""
    with closing(FileSource(parity.path)) as kept:
        return tuple(_lost_parity(kept, parity))


def _lost_parity(kept: FileSource, parity: ParityFile) -> Iterator[int]:
    layout = parity.table.layout
    for each in range(layout.parities):
        if not _is_intact(kept, parity.place(each), layout.block, parity.table.sum(layout.blocks + each)):
            yield each


def _is_intact(source: FileSource, offset: int, length: int, wanted: bytes) -> bool:
    if offset + length > source.size:
        return False
    try:
        return sum_of(source.read(offset, length)) == wanted
    except (TruncatedError, OSError):
        return False


# ---- what verify says of the parity of a sealed file


@noun
class ParityVerdict:
    """What became of the parity of a sealed file, and what it can do for it.

    ``trouble`` is why none of it can be used, "" where it can. ``damaged`` says that not all of it is as it was
    written. ``lost`` counts blocks of the file that are lost, and ``can_be_rebuilt`` those that can be rebuilt.
    ``behind`` counts bytes behind the end that the file had, which rebuilding cuts off.
    """

    path: str
    percent: float
    missing: bool = False
    trouble: str = ""
    damaged: bool = False
    blocks: int = 0
    lost: int = 0
    can_be_rebuilt: int = 0
    behind: int = 0

    @property
    def rebuilds(self) -> bool:
        """Whether all that is lost of the file can be rebuilt."""
        return not (self.missing or self.trouble) and self.lost == self.can_be_rebuilt


def verdict(path: str, source: FileSource | None, percent: float, table_sum: str, work: Work) -> ParityVerdict:
    """Return what became of the parity of the file at ``path``, made with so many percent.

    ``source`` is the file where it changed: then every block of it is read again, which ``work`` counts.
    """
    where = path + SUFFIX
    if not os.path.lexists(where):
        return ParityVerdict(where, percent, missing=True)
    try:
        found = read_parity(where)
    except DamagedError as error:
        return ParityVerdict(where, percent, trouble=error.message, damaged=True)
    except UnreadableError as error:  # as if it were missing: the file and its seal are compared without it
        return ParityVerdict(where, percent, trouble=error.message)
    if found.table_sum != table_sum:
        why = f"{where} belongs to another seal than that of {path}."
        return ParityVerdict(where, percent, trouble=why, damaged=True)
    if source is None:
        damaged = not found.complete or bool(lost_parity(found))
        return ParityVerdict(where, percent, damaged=damaged, blocks=found.table.layout.blocks)
    seen = losses(source, found, work)
    damaged = not found.complete or bool(seen.parity)
    blocks, lost, can = found.table.layout.blocks, len(seen.lost), seen.can_be_rebuilt
    behind = max(0, source.size - found.table.layout.size)
    return ParityVerdict(where, percent, False, "", damaged, blocks, lost, can, behind)
