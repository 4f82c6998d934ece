"""A checkpoint is one rank's part of a model that was split by tensor parallelism: what shapes tell of it."""

from __future__ import annotations

import re
from collections import Counter

from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.layer_names import is_vocabulary
from ckptdoctor.match.shapes.pairs import Pair, block
from ckptdoctor.noun import noun

_FEWEST = 3  # tensors that are split: fewer may be anything
_MOST = 64  # ranks that one layer is split over
_MATRICES = 4  # fewer may be split by chance
_PADDING = 128  # Megatron's make-vocab-size-divisible-by: rows per rank are a multiple of it
# what the files of single ranks are called: Llama's, Megatron's and DeepSpeed's, others'
_RANK = re.compile(r"consolidated[._]\d+|mp_rank_\d+|tp_rank_?\d+|model_part-\d+|tp\d+_", re.IGNORECASE)


@noun
class Slice:
    """One of ``count`` parts of a model that was split for tensor parallelism: ``key`` is split along ``axis``."""

    count: int
    key: str
    axis: int
    split: int


def slice_of(comparison: Comparison) -> Slice | None:
    """Return the part of the reference that the compared state dict is, where the shapes say so.

    Every name is there, most matrices are shorter along one side, all by the same number, and nothing else has another
    shape.
    """
    renamed = comparison.renamed
    wanted = comparison.reference.tensors
    if renamed.missing or renamed.unexpected or not renamed.mismatched:
        return None
    found: list[tuple[str, int, int]] = []  # key, axis, how many times as long
    for key in renamed.mismatched:
        here, there = renamed.here[key].shape, wanted[key].shape
        if len(here) != len(there):
            return None
        longer = [
            (axis, size, whole) for axis, (size, whole) in enumerate(zip(here, there, strict=True)) if size != whole
        ]
        axis, size, whole = longer[0]
        if len(longer) != 1 or not size or whole % size or whole // size < 2:
            return None
        found.append((key, axis, whole // size))
    counts = {times for _, _, times in found}
    matrices = [key for key, expected in wanted.items() if len(expected.shape) > 1]
    if len(counts) != 1 or len(found) < _FEWEST or 2 * len(set(matrices) & set(renamed.mismatched)) <= len(matrices):
        return None
    # along one side alone it may be a narrower model, or another vocabulary
    if len({axis for _, axis, _ in found}) < 2:
        return None
    return Slice(counts.pop(), found[0][0], found[0][1], len(found))


@noun
class Sharded:
    """Tensors of which the file has one of ``ranks`` parts, by the side (0: rows, 1: columns) that was split."""

    ranks: int
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    named: bool  # the file is called like a rank's


def sharded(comparison: Comparison, pairs: list[Pair]) -> Sharded | None:
    """Return which tensors were split, where nearly all matrices were, by one number.

    It is None for a model that is just smaller.

    What layers split for tensor parallelism leave whole (norms, and biases of layers that were split by columns) must
    fit; a smaller model would have smaller norms, or leave its embedding alone.
    """
    ranks = _ranks(pairs)
    if ranks is None:
        return None
    split = {pair.key: dim for pair in pairs if (dim := _split(pair, ranks)) is not None}
    if len(split) != len(pairs):
        return None
    renamed, there = comparison.renamed, comparison.reference.tensors
    named = _RANK.search(comparison.checkpoint.path.replace("\\", "/").rpartition("/")[2]) is not None
    matrices = [pair.key for pair in pairs if len(pair.here) == 2]
    whole = [key for key in renamed.fits if len(there[key].shape) == 2]
    wide = {size for pair in pairs if len(pair.here) == 2 for size in pair.there}
    norms = any(len(there[key].shape) == 1 and there[key].shape[0] in wide for key in renamed.fits)
    enough = len(matrices) >= (1 if named else 4) * len(whole) and len(matrices) >= _MATRICES
    both = {split[key] for key in matrices} == {0, 1}
    in_blocks = any(block(key) is not None for key in matrices)
    table_left = not named and any(is_vocabulary(key) and there[key].shape[0] > _PADDING for key in whole)
    if not (enough and both and in_blocks and norms) or table_left:
        return None
    rows, columns = ([key for key, dim in split.items() if dim == side] for side in (0, 1))
    return Sharded(ranks, tuple(rows), tuple(columns), named)


def _ranks(pairs: list[Pair]) -> int | None:
    """Return the number by which most sides were divided."""
    found: Counter[int] = Counter()
    for pair in pairs:
        change = pair.change
        if change is not None and change[1] > 0 and change[2] % change[1] == 0:
            found[change[2] // change[1]] += 1
    ranks = found.most_common(1)[0][0] if found else 0
    return ranks if 2 <= ranks <= _MOST else None


def _split(pair: Pair, ranks: int) -> int | None:
    """Return the side of a matrix or vector that was divided by so many, padded before where it counts tokens."""
    change = pair.change
    if change is None or len(pair.here) > 2:
        return None
    dim, ours, theirs = change
    if ours * ranks == theirs:
        return dim
    padded = dim == 0 and (is_vocabulary(pair.key) or "head" in pair.key or "output" in pair.key)
    return dim if padded and 0 < ours * ranks - theirs < ranks * _PADDING else None
