"""Checks that the chunks of a tensor are the whole of it: none outside, none over another, nothing left out."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ckptdoctor.wording import plural

Sizes = tuple[int, ...]

# pairs of chunks that are held against each other for one tensor: a grid of 64 × 64 ranks has fewer
_MOST_PAIRS = 1 << 18


def uncovered(size: Sizes, chunks: Sequence[tuple[Sizes, Sizes]]) -> str:
    """Return what is wrong with the chunks (where each begins, and its size), as the end of a sentence.

    It is "" when nothing is.
    """
    for start, sizes in chunks:
        if any(first + length > whole for first, length, whole in zip(start, sizes, size, strict=True)):
            return f"a chunk that begins at {list(start)} reaches past its end"
    filled = [each for each in chunks if 0 not in each[1]]
    there = sum([prod(sizes) for _, sizes in filled])
    if there < prod(size):
        return (
            f"{prod(size) - there:,} of {plural(prod(size), 'element')} "
            f"{'is' if prod(size) - there == 1 else 'are'} in no chunk"
        )
    if there > prod(size) or _overlap(filled):
        return "some of its chunks overlap"
    if not chunks and prod(size) == 0:
        return "it has no chunks"
    return ""


def _overlap(chunks: Sequence[tuple[Sizes, Sizes]]) -> bool:
    """Return whether two chunks share an element.

    Those are compared that meet along the side that is split most often.
    """
    if len({start for start, _ in chunks}) < len(chunks):
        return True
    if not chunks or not chunks[0][0]:
        return False
    left = _MOST_PAIRS
    side = max(range(len(chunks[0][0])), key=lambda index: len({start[index] for start, _ in chunks}))
    active: list[tuple[Sizes, Sizes]] = []
    for start, sizes in sorted(chunks, key=lambda chunk: chunk[0][side]):
        active = [each for each in active if each[0][side] + each[1][side] > start[side]]
        left -= len(active)
        if left < 0:
            return True  # so many chunks side by side are no grid of ranks
        if any(_share((start, sizes), each) for each in active):
            return True
        active.append((start, sizes))
    return False


def _share(one: tuple[Sizes, Sizes], two: tuple[Sizes, Sizes]) -> bool:
    pairs = zip(*one, *two, strict=True)
    return all(first < second + wide and second < first + long for first, long, second, wide in pairs)
