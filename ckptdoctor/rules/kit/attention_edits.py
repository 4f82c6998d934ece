"""The projections of attention are split and fused by edits, once it is known in which order their rows lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from ckptdoctor.checkpoint.keypath import KeyPath
from ckptdoctor.edits import Edit, Fuse, Split, Transpose
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.fused import Fused
from ckptdoctor.match.shapes.projections import Ranges, fuse_order, rows, split_parts


def one_after_another(found: Fused, layout: str = "q-k-v") -> dict[str, Ranges]:
    """The rows of each part in a layout in which the number of heads makes no difference."""
    queries, keys = found.part_shapes[0][0], found.part_shapes[1][0]
    size = gcd(queries, keys)
    return rows(layout, queries // size, keys // size, size)


def projection_edits(comparison: Comparison, found: Iterable[tuple[Fused, dict[str, Ranges]]]) -> tuple[Edit, ...]:
    """The edits for all of these; of one kind together: they are carried out together."""
    edits = [edit for each, ranges in found for edit in _edits(comparison, each, ranges)]
    kinds = (Split, Fuse, Transpose)
    return tuple(sorted(edits, key=lambda edit: kinds.index(type(edit))))


def _edits(comparison: Comparison, found: Fused, ranges: dict[str, Ranges]) -> Iterator[Edit]:
    names = dict(zip("qkv", found.parts, strict=True))
    here = comparison.renamed.here
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
