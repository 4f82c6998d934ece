"""Says what is wanted of an output: contents, what storages hold, and which edits brought it about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ckptdoctor.checkpoint import Checkpoint, Cycle, Node, Storage, Tensor
from ckptdoctor.checkpoint.changed_trees import mapped, tensors_in
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.edits import Compact, Edit
from ckptdoctor.edits.applied.apply_edits import ACTS, apply
from ckptdoctor.edits.applied.arranging import made_storages
from ckptdoctor.edits.applied.compacting import Piece, kept_pieces, narrowed
from ckptdoctor.edits.elements import Elements, NewStorage, View, nbytes, of_ranges, reshaped
from ckptdoctor.edits.tensors import TENSOR_EDITS, runs
from ckptdoctor.errors import RefusedError
from ckptdoctor.noun import field, noun, replace
from ckptdoctor.writing.recipe import Copy, Segment


@noun
class Stored:
    """What one storage is to hold: its bytes, and their checksum where that is known.

    ``shown`` is a tensor that shows all of it where the bytes come from, if it is to be proven element by element.
    """

    nbytes: int
    data: tuple[Segment, ...]
    crc: int | None = None
    shown: Tensor | None = None


@noun
class Wanted:
    """What an output is to hold: reading it must give ``contents``.

    ``original`` is what it is made of; of several checkpoints the first. In a copy of the original a storage holds what
    it holds there, except for three things, each by its key in ``contents``: ``pieces`` are the byte ranges to which it
    shrinks; ``remade`` is what a new one holds, in terms of the original's storages and of values that were in the
    pickle; and ``stored`` is what is put in the place of its bytes, out of any file. Nodes know by ``origin`` what they
    were made of, and ``edits`` say how that came about.

    What is not a copy, but written out of nouns alone, has all of its storages in ``stored``, and the owner and
    permissions of ``file``. Before it is known what container that will be, its storages are where they say.
    """

    original: Checkpoint
    contents: Checkpoint
    edits: tuple[Edit, ...] = ()
    remade: Mapping[str, Elements] = field(default_factory=dict)
    pieces: Mapping[str, tuple[Piece, ...]] = field(default_factory=dict)
    stored: Mapping[str, Stored] = field(default_factory=dict)
    file: str = ""


def wanted_of(checkpoint: Checkpoint, edits: Sequence[Edit]) -> Wanted:
    """Return what these edits, one after another, want of the checkpoint. Raises RefusedError as ``apply`` does."""
    origins, contents = Origins(), checkpoint
    for run in runs(edits):
        origins.remember(contents, run)
        contents = apply(contents, run)
    return Wanted(checkpoint, contents, tuple(edits), origins.remade, origins.pieces)


def kept(checkpoint: Checkpoint) -> dict[str, Stored]:
    """Return what the storages in the file hold: the bytes that they have there, packed or not."""
    return {
        each.key: Stored(extent.length, (Copy(extent.offset, extent.length),) if extent.length else ())
        for each in checkpoint.storages
        if (extent := each.extent) is not None
    }


def by_itself(wanted: Wanted, file: str) -> Wanted:
    """Return the same contents, wanted of a container that is not a copy of the original.

    Each tensor views a storage as the original's file has it, or a new one, which says what it holds. Where a storage
    shrank, its tensors view all of it again: that matters to a copy only. Raises RefusedError where two storages of the
    original have the same name: an edit could mean either.
    """
    old: dict[str, Storage] = {}
    for each in wanted.original.storages:
        if old.setdefault(each.key, each).extent != each.extent and (wanted.remade or wanted.pieces):
            raise RefusedError(f"Two storages are called {each.key}; convert the file first.")
    new = new_storages(wanted)

    def placed(node: Tensor | Cycle) -> Node:
        return on_storage(node) if isinstance(node, Tensor) else node

    def on_storage(node: Tensor) -> Tensor:
        if node.parts:
            node = replace(node, parts=tuple(map(on_storage, node.parts)))
        if node.storage is None:
            return node
        key, offset = node.storage.key, node.offset
        if key in wanted.pieces and node.numel:
            offset = _unshrunk(offset * node.dtype.bits // 8, wanted.pieces[key]) * 8 // node.dtype.bits
        storage = new.get(key) or old.get(key, node.storage)
        return replace(node, storage=storage, offset=offset)

    tree = mapped(wanted.contents.tree, placed)
    storages = tuple([new.get(each.key) or old.get(each.key, each) for each in wanted.contents.storages])
    return Wanted(wanted.contents, with_tree(wanted.contents, tree, storages), file=file)


def with_tree(checkpoint: Checkpoint, tree: Node, storages: tuple[Storage, ...]) -> Checkpoint:
    """Return the checkpoint with other contents, whose tensors view these storages."""
    tensors, state_dicts = tuple(tensors_in(tree)), find_state_dicts(tree)
    return replace(checkpoint, tree=tree, tensors=tensors, storages=storages, state_dicts=state_dicts)


def new_storages(wanted: Wanted) -> dict[str, NewStorage]:
    """Return the storages that edits made, by their keys, each with what it holds."""
    old = {each.key: each for each in wanted.original.storages}
    return {
        each.key: NewStorage(each.key, nbytes(holds), each.dtype, each.device, None, holds=holds, of=old)
        for each in wanted.contents.storages
        if (holds := wanted.remade.get(each.key)) is not None
    }


def _unshrunk(byte: int, pieces: Sequence[Piece]) -> int:
    """Return where a byte of a storage that shrank to these ranges was before."""
    passed = 0
    for start, length in pieces:
        if byte < passed + length:
            return start + byte - passed
        passed += length
    raise AssertionError(f"byte {byte} of a storage that has {passed}")


class Origins:
    """``pieces`` are the byte ranges that storages (by key) shrank to, ``remade`` what new storages hold."""

    def __init__(self) -> None:
        self.pieces: dict[str, tuple[Piece, ...]] = {}
        self.remade: dict[str, Elements] = {}

    def remember(self, checkpoint: Checkpoint, run: Sequence[Edit]) -> None:
        """Remember where the bytes come from that these edits cut or join (``edits.tensors.runs``)."""
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
        """Return what a view of a storage as the edits left it shows of the original's storages."""
        if view.held is not None:
            return view
        known = self.remade.get(view.source)
        if known is not None:
            if isinstance(known, View) and known.held is not None:
                return replace(view, held=known.held)
            if view.start or not view.contiguous or nbytes(view) != nbytes(known):
                raise RefusedError(f"Storage {view.source} was already replaced; apply this edit separately.")
            return reshaped(known, view.shape)
        pieces = self.pieces.get(view.source)
        if pieces is None:
            return view
        ranges = narrowed(pieces, ((view.start, nbytes(view) if view.contiguous else view.width),))
        return of_ranges(view, ranges) if len(ranges) > 1 else replace(view, start=ranges[0][0] if ranges else 0)
