"""A decoded pickle becomes the nouns of a checkpoint."""

from __future__ import annotations

from ckptdoctor.checkpoint import GlobalName, Node, Note, NoteKind, StateDict, Storage, Tensor
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.formats.torch.read.rebuild import REACHING
from ckptdoctor.formats.torch.read.storages import Registry, StorageTable
from ckptdoctor.formats.torch.read.tensors import INNER_READS, TensorReader
from ckptdoctor.formats.torch.read.tree import TreeBuilder
from ckptdoctor.noun import noun
from ckptdoctor.pickles.graph import Pickle, folded_references, nodes
from ckptdoctor.pickles.lookups import named_globals
from ckptdoctor.wording import plural


@noun
class Contents:
    """The nouns that one pickle describes; ``storages`` are in the order in which the pickle first uses them.

    ``shows_all`` says that the tree shows every tensor: the storages are then those of ``storages_in``.
    """

    tree: Node
    tensors: tuple[Tensor, ...]
    storages: tuple[Storage, ...]
    state_dicts: tuple[StateDict, ...]
    globals: tuple[GlobalName, ...]
    notes: tuple[Note, ...]
    shows_all: bool


def storages_in(pickle: Pickle, storages: StorageTable, member: str) -> tuple[Storage, ...]:
    """Return every storage that the pickle in ``member`` names, in its order, shown or not."""
    registry = Registry(storages, member)
    registry.complete(folded_references(pickle.root))
    return registry.storages


def interpret(pickle: Pickle, storages: StorageTable, member: str) -> Contents:
    """Return what the pickle in ``member`` describes.

    Whatever it claims, this raises nothing: oddities become notes.
    """
    registry = Registry(storages, member)
    reader = TensorReader(registry, member, pickle.opcodes + INNER_READS)
    builder = TreeBuilder(pickle, reader, member)
    tree = builder.build()
    shown = len(registry.storages)
    shows_all = not (builder.incomplete or reader.hidden or reader.notes or pickle.discards)
    if not shows_all:
        registry.complete(folded_references(pickle.root))
    read_unseen(reader, pickle)
    unseen = len(registry.storages) - shown
    notes = [*changed_elsewhere(pickle, member), *builder.notes, *reader.notes, *registry.notes]
    if unseen:
        message = (
            f"{plural(unseen, 'storage belongs', 'storages belong')} to values that the tree does not show, such "
            "as attributes of tensors"
        )
        notes.append(Note(NoteKind.NOT_EXAMINED, message, member))
    return Contents(
        tree=tree,
        tensors=tuple(builder.tensors),
        storages=registry.storages,
        state_dicts=find_state_dicts(tree),
        globals=named_globals(pickle.globals, member),
        notes=tuple(notes),
        shows_all=shows_all and not unseen,
    )


def read_unseen(reader: TensorReader, pickle: Pickle) -> None:
    """Look at tensors that the tree does not show: torch makes them, too, and what is done to them may reach others."""
    reader.read_attributes()
    if pickle.discards_calls or any(f"{use.module}.{use.name}" in REACHING for use in pickle.globals):
        reader.read_rest(nodes(pickle.root))


def changed_elsewhere(pickle: Pickle, member: str) -> list[Note]:
    """Return notes on what the pickle does to storages and classes: tensors that are made of them are then others."""
    return [
        Note(
            NoteKind.TENSOR_STATE, f"{each.message}: torch may load other values than those shown", member, each.offset
        )
        for each in pickle.ambiguities
        if each.kind == "step-target"
    ]
