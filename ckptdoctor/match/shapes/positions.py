"""S503: tables with a row for each position."""

from __future__ import annotations

from math import isqrt

from ckptdoctor.match.shapes.layer_names import is_mask_or_ids, is_position
from ckptdoctor.match.shapes.pairs import Pair
from ckptdoctor.noun import noun

_EXTRA_TOKENS = (0, 1, 2)  # none, a class token, a class and a distillation token
_TABLE = "relative_position_bias_table"


@noun
class Grid:
    """Positions as a square of patches (``side`` each way) and ``extra`` tokens before it; or as a window's offsets."""

    side: int
    extra: int = 0
    window: bool = False


@noun
class Positions:
    """Tables of ``here`` positions in the checkpoint and ``there`` in the target, and what is derived from them."""

    pairs: tuple[Pair, ...]
    here: int
    there: int
    grids: tuple[Grid, Grid] | None


def positions(pairs: list[Pair]) -> tuple[Positions, ...]:
    """Return the tables of positions by their two sizes."""
    found: dict[tuple[int, int], list[Pair]] = {}
    for pair in pairs:
        change = pair.change
        if change is not None and is_position(pair.key) and _counts_positions(pair, change[0]):
            found.setdefault(change[1:], []).append(pair)
    taken = {pair.key for each in found.values() for pair in each}
    for pair in pairs:  # masks and ids as long as the table, and the indices into it
        owner = _owner(pair, found) if pair.key not in taken else None
        if owner is not None:
            found[owner].append(pair)
    return tuple([Positions(tuple(each), *sizes, _grids(each[0], *sizes)) for sizes, each in found.items()])


def _counts_positions(pair: Pair, dim: int) -> bool:
    """Return whether this dimension of a table counts positions: the last one is its width, except for ids."""
    if pair.leaf.startswith("relative_position_index"):
        return False
    return dim < len(pair.here) - 1 or len(pair.here) == 1 or is_mask_or_ids(pair.key)


def _owner(pair: Pair, found: dict[tuple[int, int], list[Pair]]) -> tuple[int, int] | None:
    """Return the table that a mask, or an index, goes with: all its sides that differ are the table's."""
    if len(pair.here) != len(pair.there):
        return None
    sides = {(a, b) for a, b in zip(pair.here, pair.there, strict=True) if a != b}
    if len(sides) != 1:
        return None
    ours, theirs = only = next(iter(sides))
    if is_mask_or_ids(pair.key) and only in found:
        return only
    if pair.leaf == "relative_position_index":  # one for each two places in the window
        wanted = (_offsets(ours), _offsets(theirs))
        return wanted if None not in wanted and wanted in found else None
    return None


def _offsets(places: int) -> int | None:
    """Return the rows of the bias table for a square window of so many places."""
    side = isqrt(places) if places >= 0 else 0
    return (2 * side - 1) ** 2 if side * side == places else None


def _grids(pair: Pair, here: int, there: int) -> tuple[Grid, Grid] | None:
    """Return both sizes as squares of one kind, or None for sequences."""
    if pair.leaf == _TABLE:
        sides = [isqrt(size) for size in (here, there)]
        if all(side * side == size and side % 2 for side, size in zip(sides, (here, there), strict=True)):
            return Grid((sides[0] + 1) // 2, window=True), Grid((sides[1] + 1) // 2, window=True)
        return None
    if len(pair.here) == 2 and "patch" not in pair.key and "pos_embed" not in pair.key:  # texts: 512 and 1024 positions
        return None
    for extra in _EXTRA_TOKENS:
        ours, theirs = isqrt(max(here - extra, 0)), isqrt(max(there - extra, 0))
        if ours * ours == here - extra and theirs * theirs == there - extra and min(ours, theirs) > 1:
            return Grid(ours, extra), Grid(theirs, extra)
    return _other_tokens(here, there)


def _other_tokens(here: int, there: int) -> tuple[Grid, Grid] | None:
    """Return both sizes as the same square with other tokens before it."""
    for ours in _EXTRA_TOKENS:
        side = isqrt(max(here - ours, 0))
        theirs = there - side * side
        if side > 1 and side * side == here - ours and theirs in _EXTRA_TOKENS:
            return Grid(side, ours), Grid(side, theirs)
    return None
