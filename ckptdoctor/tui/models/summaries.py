"""Sums up a level: the sizes of its parts, and how the values of blocks that are alike differ from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.tree import TreeBranch
from ckptdoctor.values.statistics import TensorValues

_SHADES = "▁▂▃▄▅▆▇█"
_FLAT = 0.02  # of the largest: less than that is no difference worth a picture

ValuesOf = Callable[[int], "TensorValues | None"]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a level, and its bytes."""

    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Block:
    """The values of one of many blocks that are alike; ``zero`` counts its weights that are nothing but zeros."""

    name: str
    norm: float
    std: float
    nan: int
    infinite: int
    zero: int


def parts(opened: OpenedCheckpoint, branch: TreeBranch) -> list[Part]:
    """The parts of a level that hold tensors, largest first; of blocks that are alike those of one of them."""
    tree = opened.lines.tree
    whole = branch.blocks[0] if branch.blocks else branch
    found = []
    for item in tree.grow(whole):
        if isinstance(item, int):
            found.append(Part(tree.name(whole, item), opened.table.nbytes[item]))
        elif isinstance(item, TreeBranch) and item.rows:
            found.append(Part(item.name, tree.figures(item).nbytes))
    return sorted(found, key=lambda part: -part.nbytes)


def blocks(branch: TreeBranch, values_of: ValuesOf) -> list[Block]:
    """The blocks in their order; none where the values of a block are not known."""
    found = []
    for block in branch.blocks:
        known = [each for each in map(values_of, block.rows) if each is not None]
        if len(known) < len(block.rows):
            return []
        found.append(_block(block.name, known))
    return found


def _block(name: str, known: Sequence[TensorValues]) -> Block:
    elements = sum([each.finite for each in known])
    mean = sum([each.mean * each.finite for each in known]) / max(1, elements)
    squares = sum([(each.std**2 + each.mean**2) * each.finite for each in known]) / max(1, elements)
    return Block(
        name,
        norm=sqrt(sum([each.norm**2 for each in known])),
        std=sqrt(max(0.0, squares - mean**2)),
        nan=sum([each.nan for each in known]),
        infinite=sum([each.infinite for each in known]),
        zero=sum([each.count > 1 and each.zeros == each.count for each in known]),
    )


def strip(numbers: Sequence[float], cells: int) -> str:
    """The numbers as a row of bars, neighbours put together where there are more than cells."""
    if not numbers or cells < 1:
        return ""
    step = max(1.0, len(numbers) / cells)
    ends = [round(at * step) for at in range(min(cells, len(numbers)) + 1)]
    means = [sum(numbers[a:b]) / (b - a) for a, b in pairwise(ends)]
    low, high = min(means), max(means)
    if high - low <= _FLAT * abs(high):
        return _SHADES[3] * len(means)
    return "".join([_SHADES[round((each - low) / (high - low) * (len(_SHADES) - 1))] for each in means])


def bar(part: int, whole: int, cells: int) -> str:
    """A bar in eighths of a cell; what is there at all has a mark."""
    eighths = max(1, round(8 * cells * part / whole)) if part and whole else 0
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
