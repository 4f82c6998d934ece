"""A rank shows how far it has come, so that a sentence about its end can say where it was.

The loop reports every step. The report must cost nothing, and the last one must survive ``kill -9``: so it is sixteen
bytes written into memory that the launcher shares (a mapped file, a slot per rank), not a message on its way.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_SLOT = struct.Struct("QQ")


@dataclass(frozen=True)
class RankPosition:
    """The step a rank is in. Both count from 1; 0 is before the first."""

    epoch: int = 0
    step: int = 0

    def __str__(self) -> str:
        return f"in epoch {self.epoch}, step {self.step}" if self.epoch else "before its first step"


class PositionBoard:
    """One position per rank, in a file that the launcher and its ranks all have mapped."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    @staticmethod
    def create(path: Path, ranks: int) -> None:
        """Make the file of a board on which every rank is before its first step."""
        # written out, not truncated to size: in a full file system this fails, and not the first store into the map
        path.write_bytes(bytes(_SLOT.size * ranks))

    def write(self, rank: int, epoch: int, step: int) -> None:
        """Put up where a rank is."""
        _SLOT.pack_into(self._memory, rank * _SLOT.size, epoch, step)

    def read(self, rank: int) -> RankPosition:
        """Return the last position of a rank."""
        return RankPosition(*_SLOT.unpack_from(self._memory, rank * _SLOT.size))

    def close(self) -> None:
        """Close the mapping."""
        self._memory.close()


class _Reporter:
    """The step of this process, and the board that shows it to the launcher, when there is one."""

    def __init__(self) -> None:
        self.epoch = 0
        self.step = 0
        self.board: PositionBoard | None = None
        self.rank = 0


_REPORTER = _Reporter()


def report_position(epoch: int, step: int) -> None:
    """Say that this process begins a step. Cheap enough for every step: about a millionth of a second."""
    _REPORTER.epoch = epoch
    _REPORTER.step = step
    if _REPORTER.board is not None:
        _REPORTER.board.write(_REPORTER.rank, epoch, step)


def current_position() -> RankPosition:
    """Return the position that this process reported last."""
    return RankPosition(_REPORTER.epoch, _REPORTER.step)


def show_on(board: PositionBoard | None, rank: int = 0) -> None:
    """Show the positions of this process on a board from now on, as those of ``rank``."""
    _REPORTER.board, _REPORTER.rank = board, rank
