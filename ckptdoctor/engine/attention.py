"""Splits and fuses the projections of attention, in a layout that was stated: ``fix --auto --qkv-layout``."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.checkpoint.wording import plural
from ckptdoctor.edits import Edit
from ckptdoctor.errors import RefusedError, UsageError
from ckptdoctor.facts.alignment import compare
from ckptdoctor.facts.qkv import HEAD_BY_HEAD, Ranges, rows
from ckptdoctor.facts.shapes.fused import Fused
from ckptdoctor.facts.shapes.sorting import shapes
from ckptdoctor.rules.attention_edits import arranged, one_after_another


def attention_edits(checkpoint: Checkpoint, reference: Reference, layout: str, heads: int | None) -> tuple[Edit, ...]:
    """The edits that bring every projection of attention into the form that the reference wants.

    ``heads`` is the number of attention heads; the layouts that go head by head need it. Raises UsageError without it,
    and RefusedError where the numbers do not divide.
    """
    comparison = compare(checkpoint, reference)
    return arranged(comparison, [(each, _ranges(each, layout, heads)) for each in shapes(comparison).qkv])


def _ranges(found: Fused, layout: str, heads: int | None) -> dict[str, Ranges]:
    queries, keys = found.part_shapes[0][0], found.part_shapes[1][0]
    if heads is None:
        if layout in HEAD_BY_HEAD:
            raise UsageError(f"--qkv-layout {layout} goes head by head: say how many there are with --heads N.")
        return one_after_another(found, layout)
    if queries % heads or keys % (queries // heads):
        raise RefusedError(f"{heads:,} heads do not divide the {plural(queries, 'row')} of queries of {found.key}.")
    return rows(layout, heads, keys // (queries // heads), queries // heads)
