"""Puts what one file holds into the checkpoint of a whole folder: its paths, storages, names and notes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Cycle,
    GlobalName,
    KeyPath,
    Mapping,
    Node,
    Note,
    Opaque,
    Sequence,
    Storage,
    Tensor,
)


class Graft:
    """One file (or a stretch of one) on its way into a larger checkpoint.

    ``label`` stands before its storages' keys, so that no two files share one, and before its notes. ``shift`` is where
    the stretch begins in its file.
    """

    def __init__(self, label: str, shift: int = 0) -> None:
        self.label = label
        self._shift = shift
        self._above: KeyPath = ()
        self._storages: dict[str, Storage] = {}
        self.tensors: list[Tensor] = []

    @property
    def storages(self) -> Iterable[Storage]:
        """The storages that were met, in the order in which they were."""
        return self._storages.values()

    def storage(self, storage: Storage) -> Storage:
        """The storage under a key of its own, where it lies in the file."""
        made = self._storages.get(storage.key)
        if made is None:
            extent = storage.extent
            if extent is not None and self._shift:
                extent = replace(extent, offset=extent.offset + self._shift)
            made = replace(storage, key=f"{self.label}/{storage.key}", extent=extent)
            self._storages[storage.key] = made
        return made

    def tensor(self, tensor: Tensor, above: KeyPath) -> Tensor:
        """The tensor, its path below ``above``."""
        return replace(
            tensor,
            path=(*above, *tensor.path),
            storage=self.storage(tensor.storage) if tensor.storage is not None else None,
            parts=tuple([self.tensor(part, above) for part in tensor.parts]),
            chunks=tuple([(offsets, self.tensor(chunk, above)) for offsets, chunk in tensor.chunks]),
        )

    def node(self, node: Node, above: KeyPath) -> Node:
        """The tree below ``node``, all of its paths below ``above``; readers bound how deep it is."""
        self._above = above
        if isinstance(node, Tensor):
            made = self.tensor(node, above)
            self.tensors.append(made)
            return made
        if isinstance(node, Mapping):
            entries = tuple([(part, self.node(child, above)) for part, child in node.entries])
            own = self.node(node.attributes, above) if node.attributes is not None else None
            return Mapping(node.kind, entries, own if isinstance(own, Mapping) else None)
        if isinstance(node, Sequence):
            return Sequence(node.kind, tuple([self.node(child, above) for child in node.items]))
        if isinstance(node, Opaque):
            return Opaque(
                node.class_name,
                tuple([self.node(child, above) for child in node.arguments]),
                self.node(node.state, above),
                tuple([self.node(child, above) for child in node.items]),
                tuple([(part, self.node(child, above)) for part, child in node.entries]),
            )
        return Cycle((*above, *node.path)) if isinstance(node, Cycle) else node

    def notes(self, notes: Iterable[Note]) -> list[Note]:
        """The notes, saying which file they are about."""
        return [self._note(note) for note in notes]

    def _note(self, note: Note) -> Note:
        member = self._member(note.member or "")
        offset = note.offset + self._shift if note.offset is not None and note.member is None else note.offset
        keys = tuple([(*self._above, *key) for key in note.keys])
        return Note(note.kind, f"{self.label}: {note.message}", member, offset, keys)

    def globals(self, checkpoint: Checkpoint) -> list[GlobalName]:
        """What its pickle names, with the file before the record."""
        return [replace(each, member=self._member(each.member)) for each in checkpoint.globals]

    def asides(self, asides: Iterable[Aside]) -> list[Aside]:
        """What other pickles in it name, the same way."""
        return [
            replace(
                each,
                member=self._member(each.member),
                offset=each.offset if each.member else each.offset + self._shift,
                names=tuple([replace(name, member=self._member(name.member)) for name in each.names]),
            )
            for each in asides
        ]

    def _member(self, member: str) -> str:
        return f"{self.label}/{member}" if member else self.label
