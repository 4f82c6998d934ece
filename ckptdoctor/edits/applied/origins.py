"""What storages that edits make hold, told in terms of the original's storages, however many edits lie between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.edits import Cast, Clone, Compact, Densify, Edit, MakeContiguous, MakeTensors, MoveToCpu
from ckptdoctor.edits.applied.arranging import made_storages
from ckptdoctor.edits.applied.array_tensors import held_arrays
from ckptdoctor.edits.applied.casting import cast_storages
from ckptdoctor.edits.applied.compacting import Piece, contiguous_views, kept_pieces, narrowed
from ckptdoctor.edits.applied.densifying import dense_storages
from ckptdoctor.edits.applied.moving import held_values
from ckptdoctor.edits.elements import Elements, View, nbytes, of_ranges, reshaped
from ckptdoctor.edits.tensors import TENSOR_EDITS
from ckptdoctor.errors import RefusedError


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
        edit = run[0]
        if isinstance(edit, TENSOR_EDITS):
            return made_storages(checkpoint, run, self._original)
        if isinstance(edit, (MakeContiguous, Clone)):
            return {key: self._original(view) for key, view in contiguous_views(checkpoint, edit).items()}
        if isinstance(edit, Densify):
            return dense_storages(checkpoint, edit, self._original)
        if isinstance(edit, Cast):
            return cast_storages(checkpoint, edit, self._original)
        if isinstance(edit, MakeTensors):
            return dict(held_arrays(checkpoint, edit))
        return held_values(checkpoint, edit) if isinstance(edit, MoveToCpu) else {}

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
