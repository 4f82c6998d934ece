"""A file of ``torch.save`` can be unpacked: the records of its zip archive are files of a folder then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Container,
    DType,
    Extent,
    FolderSource,
    Note,
    NoteKind,
    Source,
    Storage,
)
from ckptdoctor.errors import CkptDoctorError, DamagedError, HostileError, UnreadableError
from ckptdoctor.formats.folders.companions import beside
from ckptdoctor.formats.folders.gathering import folder_of, known, unread
from ckptdoctor.formats.other_pickles import behind, of_texts
from ckptdoctor.formats.torch.read import interpret
from ckptdoctor.formats.torch.read.storages import ZIP_ID
from ckptdoctor.formats.torch.zip.local_headers import BIG_ENDIAN, MAX_PICKLE_BYTES, MAX_WORD_BYTES
from ckptdoctor.formats.unrepairable import refusal
from ckptdoctor.formats.window import Memory
from ckptdoctor.pickles import Pickle, decode
from ckptdoctor.pickles.nested import texts_of
from ckptdoctor.wording import plural

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

NAME = "unpacked torch archive"

_PICKLE = "data.pkl"
_BESIDE = frozenset({"data/", "version", "byteorder"})


def examine(source: Source, head: bytes) -> Container | None:
    """Return the folder that has ``data.pkl`` next to its records, or whose only folder does."""
    folder = folder_of(source)
    below = _prefix(folder)
    if below is None:
        return None
    prefix, names = below
    container = known(folder, NAME, _size(folder, prefix, names))
    if "constants.pkl" in names:
        return unread(container, "It was a TorchScript archive. Pack it again with zip -0 -r model.pt FOLDER.")
    return container


def _prefix(folder: FolderSource) -> tuple[str, tuple[str, ...]] | None:
    """Return where ``data.pkl`` is ("" or "archive/"), and the names next to it; None: this is not such a folder."""
    if _PICKLE in folder.names:
        return ("", folder.names) if not _BESIDE.isdisjoint(folder.names) else None
    if len(folder.names) != 1 or not folder.names[0].endswith("/"):
        return None
    try:
        names = folder.below(folder.names[0]).names
    except UnreadableError:  # not ours to read
        return None
    return (folder.names[0], names) if _PICKLE in names and not _BESIDE.isdisjoint(names) else None


def _size(folder: FolderSource, prefix: str, names: tuple[str, ...]) -> int:
    """Return how many bytes ``data.pkl`` and all records take."""
    records = folder.below(f"{prefix}data").names if "data/" in names else ()
    total = 0
    for name in (_PICKLE, *[f"data/{record}" for record in records if not record.endswith("/")]):
        try:
            total += folder.open(f"{prefix}{name}").size
        except CkptDoctorError:  # reading says so
            continue
    return total


def read(source: Source, container: Container) -> Checkpoint:
    """Return the contents, from ``data.pkl`` and the lengths of the records. Raises DamagedError."""
    folder = folder_of(source)
    found = _prefix(folder)
    assert found is not None
    prefix, _ = found
    name = f"{prefix}{_PICKLE}"
    data = _bytes(folder, name, MAX_PICKLE_BYTES)
    try:
        pickle = decode(data)
    except DamagedError as error:
        raise type(error)(f"{name}: {error.message}", offset=error.offset, member=name) from error
    table = _Records(folder, prefix)
    contents = interpret(pickle, table, name)
    notes = [Note(NoteKind.PICKLE_AMBIGUOUS, each.message, name, each.offset) for each in pickle.ambiguities]
    return Checkpoint(
        path=folder.path,
        format=NAME,
        size=container.size,
        tree=contents.tree,
        tensors=contents.tensors,
        storages=contents.storages,
        state_dicts=contents.state_dicts,
        globals=contents.globals,
        notes=(*notes, *_order(folder, prefix), *contents.notes, *table.notes),
        bytes_read=folder.bytes_read,
        container=container,
        asides=_asides(folder, data, pickle, prefix),
    )


def _asides(folder: FolderSource, data: bytes, pickle: Pickle, prefix: str) -> tuple[Aside, ...]:
    """Return what other pickles name: in strings of this one, after its end, and in files next to the records."""
    name = f"{prefix}{_PICKLE}"
    others, _ = beside(folder, {name}, f"{prefix}data/")
    return (*of_texts(texts_of(data, pickle), name), *behind(Memory(folder.path, data), pickle.end, name), *others)


def _bytes(folder: FolderSource, name: str, limit: int) -> bytes:
    source = folder.open(name)
    if source.size > limit:
        raise HostileError(f"{name} is {source.size:,} bytes long; at most {limit:,} are read.", member=name)
    return source.read(0, source.size)


def _order(folder: FolderSource, prefix: str) -> list[Note]:
    try:
        order = _bytes(folder, f"{prefix}byteorder", MAX_WORD_BYTES)
    except CkptDoctorError:  # older archives have no such record
        return []
    if order != b"big":
        return []
    return [Note(NoteKind.BIG_ENDIAN, BIG_ENDIAN, f"{prefix}byteorder")]


class _Records:
    """The storages: each is a file, ``data/<key>``."""

    id_parts = ZIP_ID

    def __init__(self, folder: FolderSource, prefix: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self.notes: list[Note] = []

    def find(self, key: str, dtype: DType | None, device: str, nbytes: int) -> Storage:
        """Return the storage with this key, of ``nbytes`` bytes as the pickle declares it."""
        name = f"{self._prefix}data/{key}"
        try:
            source = self._folder.open(name)
        except CkptDoctorError:
            message = f"storage {_short(key)} ({plural(nbytes, 'byte')}) has no file: its values are not in the folder"
            self.notes.append(Note(NoteKind.STORAGE_MISSING, message, _short(name)))
            return Storage(key, nbytes, dtype, device, None)
        if source.size != nbytes:
            message = f"storage {_short(key)} should be {plural(nbytes, 'byte')}, but its file has {source.size:,}"
            self.notes.append(Note(NoteKind.STORAGE_SIZE, message, _short(name)))
        return Storage(key, nbytes, dtype, device, Extent(source.file, 0, source.size))


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:100]}… ({len(text)} characters)"


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Raise RefusedError: such a folder is not repaired in place."""
    raise refusal(wanted.original)
