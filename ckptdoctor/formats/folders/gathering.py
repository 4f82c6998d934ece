"""Gathers the files of a folder into one checkpoint, each read by the reader of its own format."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from ckptdoctor import formats
from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Container,
    FolderSource,
    GlobalName,
    KeyPath,
    Node,
    Note,
    NoteKind,
    Source,
    Storage,
    Tensor,
)
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.errors import CkptDoctorError, HostileError, UnreadableError
from ckptdoctor.formats.folders.grafting import Graft
from ckptdoctor.formats.folders.unreadable import why, why_closed
from ckptdoctor.wording import plural


class Gathering:
    """What was read of a folder so far."""

    def __init__(self, folder: FolderSource) -> None:
        self.folder = folder
        self.tensors: list[Tensor] = []
        self.storages: list[Storage] = []
        self.globals: list[GlobalName] = []
        self.notes: list[Note] = []
        self.asides: list[Aside] = []
        self.read: set[str] = set()  # files whose names are among the globals and asides

    def file(self, name: str, what: str = "") -> Checkpoint | None:
        """What the file ``name`` holds by itself; None, and a note that says ``what`` of it, where it cannot be read.

        ``what`` is such as "with 4 tensors of the index".
        """
        try:
            source = self.folder.open(name)
        except HostileError as error:
            self.note(NoteKind.FILE_OUTSIDE, error.message, name)
            return None
        except UnreadableError as error:
            missing = not os.path.lexists(os.path.join(self.folder.path, name))
            gone = f"{name} is missing{f', {what}' if what else ''}"
            self.note(
                NoteKind.FILE_MISSING,
                gone if missing else f"{told(name, what)} cannot be opened: {why_closed(error)}",
                name,
            )
            return None
        return self.source(source, name, what)

    def source(self, source: Source, name: str, what: str = "") -> Checkpoint | None:
        """The same for a file, or a stretch of one, that is open already."""
        container = formats.examine(source)
        try:
            checkpoint = formats.read(source, container)
            self.read.add(name)
            return checkpoint
        except CkptDoctorError as error:
            message = f"{told(name, what)} cannot be read: {why(container, error)}"
            self.notes.append(Note(NoteKind.FILE_DAMAGED, message, name, error.offset, guidance=container.guidance))
            self.named(source, name)
            return None

    def named(self, source: Source, name: str) -> None:
        """Take in what the pickles of a file name that cannot be read for its contents."""
        from ckptdoctor.formats.asides import asides_of

        self.read.add(name)
        self.asides += asides_of(source, name)

    def note(self, kind: NoteKind, message: str, member: str | None = None, offset: int | None = None) -> None:
        """Write down what was noticed."""
        self.notes.append(Note(kind, message.rstrip("."), member, offset))

    def add(self, checkpoint: Checkpoint, label: str, above: KeyPath = (), shift: int = 0) -> Node:
        """Take in all that a file holds; its tree, with paths below ``above``."""
        graft = Graft(label, shift)
        node = graft.node(checkpoint.tree, above)
        self.take(graft, checkpoint)
        return node

    def take(self, graft: Graft, checkpoint: Checkpoint) -> None:
        """Take in the tensors that were grafted, and every storage, name and note of their file."""
        for storage in checkpoint.storages:
            graft.storage(storage)
        self.tensors += graft.tensors
        self.storages += graft.storages
        self.globals += graft.globals(checkpoint)
        self.notes += graft.notes(checkpoint.notes)
        self.asides += graft.asides(checkpoint.asides)

    def branch(self, name: str, above: KeyPath) -> Node:
        """Everything that the file ``name`` holds, below ``above``; None where it cannot be read."""
        before = len(self.notes)
        checkpoint = self.file(name)
        node = None if checkpoint is None else self.add(checkpoint, name, above)
        self.notes[before:] = [replace(note, branch=above) for note in self.notes[before:]]
        return node

    def checkpoint(self, container: Container, tree: Node, metadata: dict[str, str] | None = None) -> Checkpoint:
        """All of it as one checkpoint, and what is named by the files that lie beside it."""
        from ckptdoctor.formats.folders.companions import beside

        asides, left = beside(self.folder, self.read)
        if left:
            self.note(NoteKind.NOT_EXAMINED, f"what {plural(left, 'more file')} in the folder would call when loaded")
        return Checkpoint(
            path=self.folder.path,
            format=container.format,
            size=container.size,
            tree=tree,
            tensors=tuple(self.tensors),
            storages=tuple(self.storages),
            state_dicts=find_state_dicts(tree),
            globals=tuple(self.globals),
            metadata=metadata,
            notes=tuple(dict.fromkeys(self.notes)),
            bytes_read=self.folder.bytes_read,
            container=container,
            asides=(*dict.fromkeys(self.asides), *asides),
        )


def told(name: str, what: str) -> str:
    """The file with ``what`` is said of it, as the subject of a sentence."""
    return f"{name}, {what}," if what else name


def size_of(folder: FolderSource, names: Iterable[str]) -> int:
    """Bytes of these files together; those that are not there, or outside, do not count."""
    return sum([_size(folder, name) for name in dict.fromkeys(names)])


def _size(folder: FolderSource, name: str) -> int:
    try:
        return folder.open(name).size
    except CkptDoctorError:  # reading says so
        return 0


def folder_of(source: Source) -> FolderSource:
    """The folder that a source is: what the formats of folders are given."""
    assert isinstance(source, FolderSource)
    return source


def known(folder: FolderSource, name: str, size: int, notes: Iterable[Note] = ()) -> Container:
    """The container of a folder that can be read."""
    return Container(folder.path, size, name, b"", True, notes=tuple(notes))


def unread(container: Container, guidance: str, notes: Iterable[Note] = ()) -> Container:
    """The same for one that cannot be read, and what to do."""
    return replace(container, readable=False, guidance=guidance, notes=tuple(notes))
