"""What a repair wants: the contents that edits make of a checkpoint, and what their new storages hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.edits import Edit
from ckptdoctor.edits.applied.apply_edits import apply
from ckptdoctor.edits.applied.compacting import Piece
from ckptdoctor.edits.applied.origins import Origins
from ckptdoctor.edits.elements import Elements
from ckptdoctor.edits.tensors import runs
from ckptdoctor.noun import noun


@noun
class Wanted:
    """``contents`` are what the copy of ``original`` is to hold: its nodes know by ``origin`` what they were made of.

    ``remade`` is what new storages (by key in ``contents``) hold, in terms of the original's storages and of values
    that stood in the pickle; ``pieces`` are the byte ranges to which storages shrink. ``edits`` say how it came about.
    """

    original: Checkpoint
    contents: Checkpoint
    edits: tuple[Edit, ...] = ()
    remade: Mapping[str, Elements] = field(default_factory=dict)
    pieces: Mapping[str, tuple[Piece, ...]] = field(default_factory=dict)


def wanted_of(checkpoint: Checkpoint, edits: Sequence[Edit]) -> Wanted:
    """What these edits, one after another, want of the checkpoint. Raises RefusedError as ``apply`` does."""
    origins, contents = Origins(), checkpoint
    for run in runs(edits):
        origins.remember(contents, run)
        contents = apply(contents, run)
    return Wanted(checkpoint, contents, tuple(edits), origins.remade, origins.pieces)
