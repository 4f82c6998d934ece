"""From a decoded pickle to the nouns of a checkpoint."""

from __future__ import annotations

from ckptdoctor.checkpoint import GlobalName, Note, NoteKind
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.formats.torch_objects.contents import Contents, StorageTable
from ckptdoctor.formats.torch_objects.lookups import named
from ckptdoctor.formats.torch_objects.makers import REACHING
from ckptdoctor.formats.torch_objects.storages import Registry
from ckptdoctor.formats.torch_objects.sweep import nodes, storage_references
from ckptdoctor.formats.torch_objects.tensors import INNER_READS, TensorReader
from ckptdoctor.formats.torch_objects.tree import TreeBuilder
from ckptdoctor.pickles.graph import Pickle
from ckptdoctor.wording import plural


def interpret(pickle: Pickle, storages: StorageTable, member: str, *, whole: bool = False) -> Contents:
    """What the pickle in ``member`` describes. Whatever it claims, this raises nothing: oddities become notes.

    ``whole``: look every storage up, also where nothing that is shown uses it. What is written again needs them all.
    """
    registry = Registry(storages, member)
    reader = TensorReader(registry, member, pickle.opcodes + INNER_READS)
    builder = TreeBuilder(pickle, reader, member)
    tree = builder.build()
    shown = len(registry.storages)
    if whole or builder.incomplete or reader.hidden or reader.notes or pickle.discards:
        registry.complete(storage_references(pickle.root))
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
        globals=tuple([GlobalName(use.module, use.name, member, use.offset) for use in named(pickle)]),
        notes=tuple(notes),
    )


def read_unseen(reader: TensorReader, pickle: Pickle) -> None:
    """Look at tensors that the tree does not show: torch makes them, too, and what is done to them may reach others."""
    reader.read_attributes()
    if pickle.discards_calls or any(f"{use.module}.{use.name}" in REACHING for use in pickle.globals):
        reader.read_rest(nodes(pickle.root))


def changed_elsewhere(pickle: Pickle, member: str) -> list[Note]:
    """Notes on what the pickle does to storages and classes: tensors that are made of them are then others."""
    return [
        Note(NoteKind.TENSOR_STATE, f"{each.message}: torch may load other values than are shown", member, each.offset)
        for each in pickle.ambiguities
        if each.kind == "step-target"
    ]
