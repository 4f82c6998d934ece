"""Splits and fuses the projections of attention, in a layout that was stated: ``fix --auto --qkv-layout``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.checkpoint.expectation import Expected, Reference
from ckptdoctor.edits import Edit
from ckptdoctor.errors import RefusedError, UsageError
from ckptdoctor.match.comparing import compare
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.fused import Fused
from ckptdoctor.match.shapes.projections import HEAD_BY_HEAD, Ranges, rows
from ckptdoctor.match.shapes.sorting import shapes
from ckptdoctor.rules.kit.attention_edits import one_after_another, projection_edits
from ckptdoctor.wording import plural

_TURNED = (
    "{} {}, so that {} may have its inputs first as well: it is square, and no shape tells whether it has to be turned "
    "for {}.\n  no command can finish: bring them into one form in Python, and save the model again"
)
_INDEX = re.compile(r"\.\d+\.")


def attention_edits(checkpoint: Checkpoint, reference: Reference, layout: str, heads: int | None) -> tuple[Edit, ...]:
    """The edits that bring every projection of attention into the form that the reference wants.

    ``heads`` is the number of attention heads; the layouts that go head by head need it. Raises UsageError without it,
    and RefusedError where the numbers do not divide.
    """
    comparison = compare(checkpoint, reference)
    for each in shapes(comparison).qkv:
        _require_rows(comparison, each)
    return projection_edits(comparison, [(each, _ranges(each, layout, heads)) for each in shapes(comparison).qkv])


def _require_rows(comparison: Comparison, found: Fused) -> None:
    """Refuse to turn square parts of a matrix with its inputs first where nothing shows that they have them last.

    No shape of theirs tells; that of a layer in the same block does which is not square, and has a bias for each of its
    outputs. Where there is only a square one, it would have to be turned as well, or none of them.
    """
    side: Mapping[str, Tensor | Expected] = comparison.reference.tensors if found.here else comparison.renamed.here
    block = next((found.parts[0][: each.end()] for each in reversed(list(_INDEX.finditer(found.parts[0])))), "")
    if found.axis == 0 or not block or any(len(set(shape)) > 1 for shape in found.part_shapes):
        return
    squares = []
    for key, tensor in side.items():
        if not (key.startswith(block) and key.endswith(".weight") and len(tensor.shape) == 2) or key in found.parts:
            continue
        bias = side.get(f"{key.removesuffix('weight')}bias")
        if len(set(tensor.shape)) == 1:
            squares.append(key)
        elif bias is not None and bias.shape == tensor.shape[1:]:
            raise RefusedError(_TURNED.format(key, "has its inputs first, says its bias", found.parts[0], found.key))
        elif bias is not None and bias.shape == tensor.shape[:1]:
            return
    if squares:
        raise RefusedError(_TURNED.format(squares[0], "is square", found.parts[0], found.key))


def _ranges(found: Fused, layout: str, heads: int | None) -> dict[str, Ranges]:
    queries, keys = found.part_shapes[0][0], found.part_shapes[1][0]
    if heads is None:
        if layout in HEAD_BY_HEAD:
            raise UsageError(f"--qkv-layout {layout} goes head by head: say how many there are with --heads N.")
        return one_after_another(found, layout)
    if queries % heads or keys % (queries // heads):
        raise RefusedError(f"{heads:,} heads do not divide the {plural(queries, 'row')} of queries of {found.key}.")
    return rows(layout, heads, keys // (queries // heads), queries // heads)
