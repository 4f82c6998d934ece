"""Sums up a level: the sizes of its parts, and how the values of blocks that are alike differ from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt

from ckptdoctor.rendering.numbers import count
from ckptdoctor.tui.models.opened_checkpoint import OpenedCheckpoint
from ckptdoctor.tui.models.tree import TreeBranch, TreeItem, ValuesOf
from ckptdoctor.values.statistics import TensorValues

_SHADES = "▁▂▃▄▅▆▇█"
_FLAT = 0.02  # of the largest: less than that is no difference worth a picture


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a level, or (``depth`` 1) of such a part: its bytes, and its standard deviation where that is known."""

    name: str
    nbytes: int
    std: float | None = None
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """The values of one of many blocks that are alike; ``zero`` counts its weights that are nothing but zeros."""

    name: str
    norm: float
    std: float
    nan: int
    infinite: int
    zero: int


def parts(opened: OpenedCheckpoint, branch: TreeBranch, most: int) -> list[Part]:
    """Return the parts of a level that hold tensors, largest first; for blocks that are alike, those of one block.

    Of a level that has a single part, they are those of this part, where it has several.

    Where fewer than ``most`` would be listed, their own parts come below them, as far as there is room; those of
    blocks that are alike have the bytes of all of these.
    """
    found = _parts(opened, branch.blocks[0] if branch.blocks else branch, 0)
    while len(found) == 1 and isinstance(only := found[0][1], TreeBranch) and not only.blocks:
        found = _parts(opened, only, 0)
    room, listed = most - len(found), []
    for part, item in found:
        listed.append(part)
        inside = item.blocks[0] if isinstance(item, TreeBranch) and item.blocks else item
        if room < 1 or len(found) < 2 or not isinstance(inside, TreeBranch):  # nothing is grown that is not shown
            continue
        times = len(item.blocks) if inside is not item and isinstance(item, TreeBranch) else 1
        below = _all_of([each for each, _ in _parts(opened, inside, 1)], times, room)
        if len(below) > 1:
            listed += below
            room -= len(below)
    return listed


def _all_of(found: list[Part], times: int, room: int) -> list[Part]:
    """The parts of one of so many blocks, with the bytes of all blocks; those without room as one part."""
    found = found if times == 1 else [replace(each, nbytes=each.nbytes * times, std=None) for each in found]
    if len(found) <= room:
        return found
    rest = found[room - 1 :]
    return [*found[: room - 1], Part(f"{count(len(rest))} more", sum([each.nbytes for each in rest]), None, 1)]


def _parts(opened: OpenedCheckpoint, branch: TreeBranch, depth: int) -> list[tuple[Part, TreeItem]]:
    tree = opened.lines.tree
    found: list[tuple[Part, TreeItem]] = []
    for item in tree.grow(branch):
        if isinstance(item, int):
            known = opened.glimpse_of(item)
            std = known.std if known is not None else None
            found.append((Part(tree.name(branch, item), opened.table.nbytes[item], std, depth), item))
        elif isinstance(item, TreeBranch) and item.rows:
            found.append((Part(item.name, tree.figures(item).nbytes, None, depth), item))
    return sorted(found, key=lambda each: -each[0].nbytes)


def blocks_of(opened: OpenedCheckpoint, branch: TreeBranch) -> TreeBranch | None:
    """Return the fold of blocks that a level consists of, or the largest fold in it; None where it has none."""
    if branch.blocks:
        return branch
    folds = [item for item in opened.lines.tree.grow(branch) if isinstance(item, TreeBranch) and item.blocks]
    return max(folds, key=lambda fold: len(fold.rows), default=None)


def blocks(branch: TreeBranch, values_of: ValuesOf, is_weight: Callable[[int], bool] = lambda row: True) -> list[Block]:
    """Return the blocks in their order; none where the values of a block are not known.

    ``is_weight`` tells which tensors should not be all zeros: biases begin so.
    """
    found = []
    for block in branch.blocks:
        known = [each for each in map(values_of, block.rows) if each is not None]
        if len(known) < len(block.rows):
            return []
        zero = [row for row in block.rows if is_weight(row) and _is_zero(values_of(row))]
        found.append(_block(block.name.partition(".")[0], known, len(zero)))
    return found


def _is_zero(values: TensorValues | None) -> bool:
    return values is not None and values.count > 1 and values.zeros == values.count


def _block(name: str, known: Sequence[TensorValues], zero: int) -> Block:
    elements = sum([each.finite for each in known])
    mean = sum([each.mean * each.finite for each in known]) / max(1, elements)
    squares = sum([(each.std**2 + each.mean**2) * each.finite for each in known]) / max(1, elements)
    return Block(
        name,
        norm=sqrt(sum([each.norm**2 for each in known])),
        std=sqrt(max(0.0, squares - mean**2)),
        nan=sum([each.nan for each in known]),
        infinite=sum([each.infinite for each in known]),
        zero=zero,
    )


def strip(numbers: Sequence[float], cells: int, height: int = 1) -> list[str]:
    """Return numbers as bars of so many lines, the top one first; neighbours share a bar where there is no room."""
    if not numbers or cells < 1:
        return [""] * height
    drawn = min(cells, len(numbers))
    ends = [-(-at * len(numbers) // drawn) for at in range(drawn + 1)]
    means = [sum(numbers[a:b]) / (b - a) for a, b in pairwise(ends)]
    low, high = min(means), max(means)
    most = len(_SHADES) * height - 1
    if high - low <= _FLAT * abs(high):
        levels = [most // 2] * drawn
    else:
        levels = [round((each - low) / (high - low) * most) for each in means]
    lines = [range(len(_SHADES) * line, len(_SHADES) * (line + 1)) for line in range(height - 1, -1, -1)]
    return ["".join([_shade(level, line) for level in levels]) for line in lines]


def _shade(level: int, line: range) -> str:
    return _SHADES[min(level, line[-1]) - line.start] if level >= line.start else " "


def bar(part: int, whole: int, cells: int) -> str:
    """Return a bar in eighths of a cell; anything above zero has a mark."""
    eighths = max(1, round(8 * cells * part / whole)) if part and whole else 0
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
