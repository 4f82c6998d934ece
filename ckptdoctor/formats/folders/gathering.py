"""Gathers the files of a folder into one checkpoint, each read by the reader of its own format."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor import formats
from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Container,
    Cycle,
    FolderSource,
    GlobalName,
    KeyPath,
    Mapping,
    Node,
    Note,
    NoteKind,
    Opaque,
    Sequence,
    Source,
    Storage,
    Tensor,
)
from ckptdoctor.checkpoint.checkpoint import Rival
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.errors import CkptDoctorError, HostileError, UnreadableError
from ckptdoctor.noun import maker, replace
from ckptdoctor.wording import format_name, plural


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
        self.metadata: dict[str, str] | None = None  # what the files of weights say of themselves, as far as they agree
        self.disputed: tuple[str, ...] = ()
        self.index_metadata: dict[str, object] = {}
        self.rivals: list[Rival] = []

    def file(self, name: str, what: str = "") -> Checkpoint | None:
        """Return what the file ``name`` holds by itself.

        It is None, and a note says ``what`` of it, where it cannot be read.

        ``what`` is such as "with 4 tensors of the index".
        """
        try:
            source = self.folder.open(name)
        except HostileError as error:
            self.note(NoteKind.FILE_OUTSIDE, error.message, name)
            return None
        except UnreadableError as error:
            missing = not self.folder.has(name)
            gone = f"{name} is missing{f', {what}' if what else ''}"
            self.note(
                NoteKind.FILE_MISSING,
                gone if missing else f"{told(name, what)} cannot be opened: {why_closed(error)}",
                name,
            )
            return None
        return self.source(source, name, what)

    def source(self, source: Source, name: str, what: str = "") -> Checkpoint | None:
        """Return the same for a file, or a stretch of one, that is open already."""
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
        from ckptdoctor.formats.other_pickles import asides_of

        self.read.add(name)
        self.asides += asides_of(source, name)

    def note(self, kind: NoteKind, message: str, member: str | None = None, offset: int | None = None) -> None:
        """Write down what was noticed."""
        self.notes.append(Note(kind, message.rstrip("."), member, offset))

    def add(self, checkpoint: Checkpoint, label: str, above: KeyPath = (), shift: int = 0) -> Node:
        """Take in all that a file holds; its tree, with paths below ``above``."""
        rebased = Rebased(label, shift)
        node = rebased.node(checkpoint.tree, above)
        self.take(rebased, checkpoint)
        return node

    def take(self, rebased: Rebased, checkpoint: Checkpoint) -> None:
        """Take in the tensors that were rebased, and every storage, name and note of their file."""
        for storage in checkpoint.storages:
            rebased.storage(storage)
        self.tensors += rebased.tensors
        self.storages += rebased.storages
        self.globals += rebased.globals(checkpoint)
        self.notes += rebased.notes(checkpoint.notes)
        self.asides += rebased.asides(checkpoint.asides)

    def branch(self, name: str, above: KeyPath, *, weights: bool = False) -> Node:
        """Return everything that the file ``name`` holds, below ``above``, or None where it cannot be read.

        What ``weights`` say of themselves is said of the folder.
        """
        before = len(self.notes)
        checkpoint = self.file(name)
        if weights and checkpoint is not None:
            self.metadata = checkpoint.metadata
        node = None if checkpoint is None else self.add(checkpoint, name, above)
        self.notes[before:] = [replace(note, branch=above) for note in self.notes[before:]]
        return node

    def checkpoint(self, container: Container, tree: Node) -> Checkpoint:
        """Return all of it as one checkpoint, and what is named by the files next to it."""
        from ckptdoctor.formats.folders.companions import beside

        asides, left = beside(self.folder, self.read)
        if left:
            self.note(
                NoteKind.NOT_EXAMINED,
                f"the calls that {plural(left, 'more file')} in the folder would make when loaded",
            )
        return Checkpoint(
            path=self.folder.path,
            format=container.format,
            size=container.size,
            tree=tree,
            tensors=tuple(self.tensors),
            storages=tuple(self.storages),
            state_dicts=find_state_dicts(tree),
            globals=tuple(self.globals),
            metadata=self.metadata,
            notes=tuple(dict.fromkeys(self.notes)),
            bytes_read=self.folder.bytes_read,
            container=container,
            asides=(*dict.fromkeys(self.asides), *asides),
            disputed=self.disputed,
            index_metadata=self.index_metadata,
            rivals=tuple(self.rivals),
        )


def told(name: str, what: str) -> str:
    """Return the file with ``what`` is said of it, as the subject of a sentence."""
    return f"{name}, {what}," if what else name


def size_of(folder: FolderSource, names: Iterable[str]) -> int:
    """Return how many bytes these files take together; those that are not there, or outside, do not count."""
    return sum([_size(folder, name) for name in dict.fromkeys(names)])


def _size(folder: FolderSource, name: str) -> int:
    try:
        return folder.open(name).size
    except CkptDoctorError:  # reading says so
        return 0


def folder_of(source: Source) -> FolderSource:
    """Return the folder that a source is: what the formats of folders are given."""
    assert isinstance(source, FolderSource)
    return source


def known(folder: FolderSource, name: str, size: int, notes: Iterable[Note] = ()) -> Container:
    """Return the container of a folder that can be read."""
    return Container(folder.path, size, name, b"", True, notes=tuple(notes))


def unread(container: Container, guidance: str, notes: Iterable[Note] = ()) -> Container:
    """Return the same for one that cannot be read, and what to do."""
    return replace(container, readable=False, guidance=guidance, notes=tuple(notes))


# ---- what one file holds, put into the checkpoint of the whole folder: its paths, storages, names and notes


_storage = maker(Storage)


class Rebased:
    """One file (or a stretch of one) on its way into a larger checkpoint.

    ``label`` comes before its storages' keys, so that no two files share one, and before its notes. ``shift`` is where
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
        """Return the storage under a key of its own, with its place in the file."""
        made = self._storages.get(storage.key)
        if made is None:
            extent = storage.extent
            if extent is not None and self._shift:
                extent = replace(extent, offset=extent.offset + self._shift)
            key = f"{self.label}/{storage.key}"
            said = storage.nbytes, storage.dtype, storage.device, extent, storage.crc32, storage.compressed
            made = _storage(key, *said)
            self._storages[storage.key] = made
        return made

    def tensor(self, tensor: Tensor, above: KeyPath) -> Tensor:
        """Return the tensor, its path below ``above``."""
        path = (*above, *tensor.path)
        storage = self.storage(tensor.storage) if tensor.storage is not None else None
        if not tensor.parts and not tensor.chunks:  # nearly every tensor
            return replace(tensor, path=path, storage=storage)
        return replace(
            tensor,
            path=path,
            storage=storage,
            parts=tuple([self.tensor(part, above) for part in tensor.parts]),
            chunks=tuple([(offsets, self.tensor(chunk, above)) for offsets, chunk in tensor.chunks]),
        )

    def node(self, node: Node, above: KeyPath) -> Node:
        """Return the tree below ``node``, all of its paths below ``above``; readers bound how deep it is."""
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
        """Return the notes, saying which file they are about."""
        return [self._note(note) for note in notes]

    def _note(self, note: Note) -> Note:
        member = self._member(note.member or "")
        offset = note.offset + self._shift if note.offset is not None and note.member is None else note.offset
        keys = tuple([(*self._above, *key) for key in note.keys])
        return Note(note.kind, f"{self.label}: {note.message}", member, offset, keys)

    def globals(self, checkpoint: Checkpoint) -> list[GlobalName]:
        """Return what its pickle names, with the file before the record."""
        return [replace(each, member=self._member(each.member)) for each in checkpoint.globals]

    def asides(self, asides: Iterable[Aside]) -> list[Aside]:
        """Return what other pickles in it name, the same way."""
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


# ---- why a file cannot be read, in words that follow its name


_CLOSED = " cannot be opened: "  # between the path and the reason, in what ``FileSource`` raises


def why(container: Container, error: CkptDoctorError) -> str:
    """Return what is there instead of a checkpoint, or what ``error`` says about a damaged one, without the path."""
    if container.readable:
        return _without(container.path, error.message.partition("\n")[0]).rstrip(".")
    told = next((note.message for note in container.notes if note.kind is not NoteKind.WRONG_SUFFIX), "")
    if told:
        return told.rstrip(".")
    if not container.format:
        return "its format is unrecognised"
    return f"it is {'an' if container.format[:1].lower() in 'aeiou' else 'a'} {format_name(container.format)}"


def why_closed(error: UnreadableError) -> str:
    """Return why a file could not be opened, as the rest of a sentence without its full stop."""
    return (error.message.partition(_CLOSED)[2] or error.message).rstrip(".")


def _without(path: str, message: str) -> str:
    """Return the message without the path that it begins with."""
    if message.startswith(f"{path}: "):
        return message[len(path) + 2 :]
    return f"it{message[len(path) :]}" if message.startswith(f"{path} ") else message
