"""Edits of tensors in one line: ``transpose h.{0..11}.attn.c_attn.weight [768, 2304]  →  [2304, 768]``."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.edits.steps import Change
from ckptdoctor.report.abbreviating import pattern
from ckptdoctor.report.escape import escape
from ckptdoctor.report.wrapping import abridged

KINDS = frozenset(
    {"reshape", "transpose", "fill", "split", "fuse", "fuse-norm", "dequantize", "compute", "tie", "cast"}
)

_NAMES = 80  # characters of the names on either side of the arrow
_SHAPE = " ["  # where the name ends in "name [2, 3]"


def arranged(change: Change) -> str:
    """What becomes of which tensors; the tensors of one change have the same shapes."""
    behind = [new for _, new in change.pairs if new]
    if change.kind in ("fill", "tie"):
        return f"{change.kind} {_listed(behind)}"
    before = _listed([old for old, _ in change.pairs if old])
    if change.kind in ("reshape", "transpose", "cast"):
        return f"{change.kind} {before}  →  {_shapes(behind).strip()}"
    verb = "compute" if change.kind in ("fuse-norm", "dequantize", "compute") else change.kind
    return f"{verb} {before}  →  {_listed(behind)}"


def _listed(tensors: Sequence[str]) -> str:
    names = [tensor.rpartition(_SHAPE)[0] for tensor in tensors]
    return f"{abridged(escape(pattern(names)), _NAMES)}{_shapes(tensors)}"


def _shapes(tensors: Sequence[str]) -> str:
    """The shape of all; "" where they differ."""
    shapes = {tensor.rpartition(_SHAPE)[2] for tensor in tensors}
    return f"{_SHAPE}{shapes.pop()}" if len(shapes) == 1 else ""
