"""Finds tensors that have another name and the very same values: by dtype, shape and a hash of the contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ckptdoctor.checkpoint import Source
from ckptdoctor.differences import Difference, Pair, Single, Values, Verdict
from ckptdoctor.formats.compose.strided import segments
from ckptdoctor.values.diff_bytes import Blocks, Files, Tally, leaves
from ckptdoctor.writing.recipe import Generated

_FEWEST = 16  # elements: a smaller tensor may be the same by chance
_MOST = 20_000  # tensors of one side


def by_contents(found: Difference, a: Source, b: Source, swapped: tuple[bool, bool], tally: Tally) -> Difference:
    """The same with pairs of tensors that only one side has under its name, but both in contents.

    One to one: contents that one side has twice tell nothing. Renamings that were a guess give way to contents.
    """
    removed, added = _without_counterpart(found)
    mine, its = candidates(found)
    if not mine or not its:
        return found
    with Files(a) as files_a, Files(b) as files_b:
        blocks = Blocks(files_a, files_b, tally)
        here = _unique(mine, blocks, 0, swapped[0], a.distant)
        there = _unique(its, blocks, 1, swapped[1], b.distant)
    made = [_pair(here[digest], there[digest]) for digest in here if digest in there]
    gone = {id(pair.a) for pair in made}, {id(pair.b) for pair in made}
    kept = [pair for pair in found.pairs if pair.sure or not (id(pair.a) in gone[0] or id(pair.b) in gone[1])]
    held = {id(pair.a) for pair in kept}, {id(pair.b) for pair in kept}
    gone_a, gone_b = (one | other for one, other in zip(gone, held, strict=True))
    return replace(
        found,
        pairs=(*kept, *made),
        removed=tuple([each for each in removed if id(each.tensor) not in gone_a]),
        added=tuple([each for each in added if id(each.tensor) not in gone_b]),
    )


def candidates(found: Difference) -> tuple[list[Single], list[Single]]:
    """The tensors of either side whose contents are looked at: the other side has one of their dtype and shape."""
    removed, added = _without_counterpart(found)
    kinds = {_kind(each) for each in removed} & {_kind(each) for each in added}
    mine, its = ([each for each in side if _kind(each) in kinds][:_MOST] for side in (removed, added))
    return mine, its


def _without_counterpart(found: Difference) -> tuple[list[Single], list[Single]]:
    guesses = [pair for pair in found.pairs if not pair.sure]
    removed = [*found.removed, *[Single(pair.name, pair.a, pair.weights) for pair in guesses]]
    added = [*found.added, *[Single(pair.name_b, pair.b, pair.weights) for pair in guesses]]
    return removed, added


def _pair(one: Single, other: Single) -> Pair:
    values = Values(Verdict.EQUAL)
    return Pair(one.name, other.name, one.tensor, other.tensor, one.weights, by_content=True, values=values)


def _kind(single: Single) -> tuple[str, tuple[int, ...], bool]:
    return single.tensor.dtype.name, single.tensor.shape, single.weights


def _unique(
    singles: Sequence[Single], blocks: Blocks, side: int, swapped: bool, distant: bool
) -> dict[tuple[object, bytes], Single]:
    """What has contents of its own, by its kind and a hash of them."""
    found: dict[tuple[object, bytes], Single | None] = {}
    for each in singles:
        plain = leaves(each.tensor)
        if isinstance(plain, str) or len(plain) != 1 or each.tensor.numel < _FEWEST:
            continue
        data = segments(plain[0], swapped)
        if distant and any(isinstance(segment, Generated) for segment in data):
            continue
        key = _kind(each), blocks.digest(data, side)
        found[key] = None if key in found else each
    return {key: each for key, each in found.items() if each is not None}
