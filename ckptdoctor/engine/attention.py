"""Splits and fuses the projections of attention, in a layout that was stated: ``fix --auto --qkv-layout``."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.checkpoint.keypath import KeyPath
from ckptdoctor.checkpoint.wording import plural
from ckptdoctor.edits import Edit, Fuse, Split, Transpose
from ckptdoctor.errors import RefusedError, UsageError
from ckptdoctor.facts.alignment import Comparison, compare
from ckptdoctor.facts.qkv import HEAD_BY_HEAD, Ranges, fuse_order, rows, split_parts
from ckptdoctor.facts.shapes.fused import Fused
from ckptdoctor.facts.shapes.sorting import shapes


def attention_edits(checkpoint: Checkpoint, reference: Reference, layout: str, heads: int | None) -> tuple[Edit, ...]:
    """The edits that bring every projection of attention into the form that the reference wants.

    ``heads`` is the number of attention heads; the layouts that go head by head need it. Raises UsageError without it,
    and RefusedError where the numbers do not divide.
    """
    comparison = compare(checkpoint, reference)
    found = shapes(comparison).qkv
    edits = [edit for each in found for edit in _edits(comparison, each, _ranges(each, layout, heads))]
    kinds = (Split, Fuse, Transpose)  # of one kind together: they are carried out together
    return tuple(sorted(edits, key=lambda edit: kinds.index(type(edit))))


def _ranges(found: Fused, layout: str, heads: int | None) -> dict[str, Ranges]:
    queries, keys = found.part_shapes[0][0], found.part_shapes[1][0]
    if heads is None:
        if layout in HEAD_BY_HEAD:
            raise UsageError(f"--qkv-layout {layout} goes head by head: say how many there are with --heads N.")
        size = gcd(queries, keys)
        return rows(layout, queries // size, keys // size, size)
    if queries % heads or keys % (queries // heads):
        raise RefusedError(f"{heads:,} heads do not divide the {plural(queries, 'row')} of queries of {found.key}.")
    return rows(layout, heads, keys // (queries // heads), queries // heads)


def _edits(comparison: Comparison, found: Fused, ranges: dict[str, Ranges]) -> Iterator[Edit]:
    names = dict(zip("qkv", found.parts, strict=True))
    here = comparison.cured.here
    if found.here:
        yield Split(here[found.key].path, split_parts(ranges, names), found.axis)
        if found.axis == 1:  # inputs × outputs, the way of Conv1D
            yield from (Transpose(_beside(here[found.key].path, part)) for part in found.parts)
        return
    yield Fuse(tuple([here[part].path for part in found.parts]), found.key, 0, fuse_order(ranges))
    if found.axis == 1:
        yield Transpose(_beside(here[found.parts[0]].path, found.key))


def _beside(path: KeyPath, key: str) -> KeyPath:
    return (*path[:-1], key)
