"""Puts the bytes of a recipe into the output file: long ranges by the kernel, the rest block by block."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import accumulate

from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.writing.blocks import SMALL, Reading, blocks
from ckptdoctor.writing.originals import Originals
from ckptdoctor.writing.recipe import Copy, Recipe, Segment
from ckptdoctor.writing.system import clone, copy_range, preallocate, write_at

_AT_ONCE = 32 << 20  # bytes that the kernel copies in one call: between two calls an interrupt is answered
_WORTH_CLONING = 16 << 20  # shorter outputs are as quickly copied


def reserve(recipe: Recipe, files: Originals, target: int) -> bool:
    """Get the space for the whole output. True: ``target`` already holds every copied range, at no cost.

    Raises OSError on a full disk, before a byte is written.
    """
    if _stays_in_place(recipe) and clone(files.first, target):
        os.ftruncate(target, recipe.size)
        return True
    preallocate(target, recipe.size)
    return False


def _stays_in_place(recipe: Recipe) -> bool:
    """Whether every copied range keeps its offset, so that sharing the original's blocks gives most of the output."""
    offsets = [0, *accumulate(segment.length for segment in recipe.segments)]
    moved = any(
        isinstance(each, Copy) and (each.offset != at or each.file not in (None, recipe.source))
        for each, at in zip(recipe.segments, offsets, strict=False)
    )
    return not moved and recipe.size - recipe.new_bytes >= _WORTH_CLONING


def fill(recipe: Recipe, files: Originals, target: int, cloned: bool = False, work: Work | None = None) -> None:
    """Write every segment at its place; ``cloned`` files hold their copied ranges already."""
    work = work or Work()
    original = Reading(files)
    at = 0
    for run in _runs(recipe.segments):
        length = sum(segment.length for segment in run)
        first = run[0]
        if not (isinstance(first, Copy) and first.length >= SMALL):
            _write(blocks(run, original), target, at, work)
        elif not cloned:
            _copy(first, original, files, target, at, work)
        at += length
        work.reach(at)


def _runs(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Long copied ranges one by one; everything between two of them together."""
    run: list[Segment] = []
    for segment in segments:
        if isinstance(segment, Copy) and segment.length >= SMALL:
            if run:
                yield run
            yield [segment]
            run = []
        else:
            run.append(segment)
    if run:
        yield run


def _copy(segment: Copy, original: Reading, files: Originals, target: int, at: int, work: Work) -> None:
    done = 0
    while done < segment.length:
        count = min(_AT_ONCE, segment.length - done)
        copied = copy_range(files.fd(segment.file), target, count, segment.offset + done, at + done)
        if not copied:  # not offered here, or the original has ended: reading tells
            rest = Copy(segment.offset + done, segment.length - done, segment.file)
            _write(original.large(rest), target, at + done, work)
            return
        done += copied
        work.reach(at + done)


def _write(data: Iterable[bytes | memoryview], target: int, at: int, work: Work) -> None:
    for block in data:
        view = memoryview(block)
        while view:
            written = write_at(target, view, at)
            view, at = view[written:], at + written
        work.reach(at)
