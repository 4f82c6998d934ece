"""Says what a repair wants: the contents that edits make of a checkpoint, and what their new storages hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.edits import Compact, Edit
from ckptdoctor.edits.applied.apply_edits import ACTS, apply
from ckptdoctor.edits.applied.arranging import made_storages
from ckptdoctor.edits.applied.compacting import Piece, kept_pieces, narrowed
from ckptdoctor.edits.elements import Elements, View, nbytes, of_ranges, reshaped
from ckptdoctor.edits.tensors import TENSOR_EDITS, runs
from ckptdoctor.errors import RefusedError
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


class Origins:
    """``pieces`` are the byte ranges that storages (by key) shrank to, ``remade`` what new storages hold."""

    def __init__(self) -> None:
        self.pieces: dict[str, tuple[Piece, ...]] = {}
        self.remade: dict[str, Elements] = {}

    def remember(self, checkpoint: Checkpoint, run: Sequence[Edit]) -> None:
        """Where the bytes come from that these edits of ``checkpoint`` cut or put together (``edits.tensors.runs``)."""
        edit = run[0]
        if isinstance(edit, Compact):
            for key, kept in kept_pieces(checkpoint.tensors, edit.storages).items():
                self.pieces[key] = narrowed(self.pieces[key], kept) if key in self.pieces else kept
        else:
            self.remade.update(self._made(checkpoint, run))

    def _made(self, checkpoint: Checkpoint, run: Sequence[Edit]) -> Mapping[str, Elements]:
        if isinstance(run[0], TENSOR_EDITS):
            return made_storages(checkpoint, run, self._original)
        return ACTS[type(run[0])].holds(checkpoint, run[0], self._original)

    def _original(self, view: View) -> Elements:
        """What a view of a storage as the edits left it shows of the original's storages."""
        if view.held is not None:
            return view
        known = self.remade.get(view.source)
        if known is not None:
            if isinstance(known, View) and known.held is not None:
                return replace(view, held=known.held)
            if view.start or not view.contiguous or nbytes(view) != nbytes(known):
                raise RefusedError(f"Storage {view.source} was made anew before; apply this edit on its own.")
            return reshaped(known, view.shape)
        pieces = self.pieces.get(view.source)
        if pieces is None:
            return view
        ranges = narrowed(pieces, ((view.start, nbytes(view) if view.contiguous else view.width),))
        return of_ranges(view, ranges) if len(ranges) > 1 else replace(view, start=ranges[0][0] if ranges else 0)
