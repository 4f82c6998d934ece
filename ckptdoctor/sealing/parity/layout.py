"""Decides how a file is cut into blocks and groups, for parity of so many percent of it."""

from __future__ import annotations

from ckptdoctor.errors import UsageError
from ckptdoctor.noun import noun

# bytes of a block: as small as what a disk loses at once, and at most that of a seal
SMALLEST, LARGEST = 4 << 10, 1 << 20
_BLOCKS = 1024  # blocks that even a small file is cut into, unless they were smaller than the smallest
MOST = 256  # blocks of a group with its parity: as many as bytes have values
# parity blocks of a group: any so many can be lost, and each takes as long again to make
_PER_GROUP = 8
LEAST_PERCENT, MOST_PERCENT = 0.5, 100.0


@noun
class Layout:
    """A file of ``size`` bytes in blocks of ``block``: ``groups`` of at most ``data``, with ``parity`` blocks each.

    Block n is in group n % groups, as its block n // groups; parity block n as well.
    """

    size: int
    block: int
    data: int
    parity: int
    groups: int

    @property
    def blocks(self) -> int:
        """How many the file has; the last may be shorter, and counts as if zeros were behind it."""
        return -(-self.size // self.block)

    @property
    def parities(self) -> int:
        """How many blocks of parity there are."""
        return self.groups * self.parity

    @property
    def run(self) -> int:
        """How many bytes in a row may be lost, wherever they begin."""
        return (self.parities - 1) * self.block + 1

    def length(self, at: int) -> int:
        """Return how many bytes of the file block ``at`` has."""
        return min(self.block, self.size - at * self.block)

    def members(self, group: int) -> range:
        """Return the blocks of a group."""
        return range(group, self.blocks, self.groups)


def laid_out(size: int, percent: float) -> Layout:
    """Return the layout of a file with as much parity as was asked for, rounded up to whole blocks.

    Of layouts that take at most a tenth more, that is chosen of which most blocks of a group can be lost.
    """
    block = SMALLEST
    while block < LARGEST and size // (2 * block) >= _BLOCKS:
        block *= 2
    blocks = -(-size // block)
    wanted = max(1, -(-blocks * round(percent * 1000) // 100_000))
    groups = {each: max(-(-wanted // each), -(-blocks // (MOST - each))) for each in range(1, _PER_GROUP + 1)}
    least = min(each * count for each, count in groups.items())
    parity = max(each for each, count in groups.items() if each * count <= (11 * least + 5) // 10)
    return Layout(size, block, -(-blocks // groups[parity]), parity, groups[parity])


def percent_of(text: str) -> float:
    """Return how many percent a text such as "1%" or "2.5" means. Raises UsageError for any other."""
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not LEAST_PERCENT <= percent <= MOST_PERCENT:
        raise UsageError(f'--parity: "{text}" is not a share of the file. Use {LEAST_PERCENT}% to {MOST_PERCENT:.0f}%.')
    return percent
